//! Identify data structures (section 5.15).

use wire::nvme::admin::cns;
use wire::nvme::identify::{
    self, IdentifyController, IdentifyNamespace, LbaFormat, emit_controllers, emit_descriptors,
    emit_namespaces,
};
use wire::nvme::registers::VERSION_1_4;
use wire::nvme::{ALL_NAMESPACES, IDENTIFY_LEN, Status};

use super::drive::Drive;
use super::events::ERRORS;
use super::namespaces::{FORMATS, Namespace};

/// One firmware slot, which is read-only as there is no command to write it.
const ONE_FIRMWARE_SLOT: u8 = 1 << 1 | 1;
/// Warning temperature recommended by the specification (343 K, WCTEMP).
const WARNING_TEMPERATURE: u16 = 343;
/// Ten kelvin above the warning, assumed: the specification recommends no value.
const CRITICAL_TEMPERATURE: u16 = 353;

/// The data structure `what` (one of [`cns`]) for `namespace`, as returned by a controller.
pub(super) fn page(
    drive: &Drive,
    controller: u16,
    what: u8,
    namespace: u32,
) -> Result<Box<[u8; IDENTIFY_LEN]>, Status> {
    let namespaces = drive.namespaces.borrow();
    let known = namespaces.get(namespace);
    let here = |ns: &&Namespace| ns.is_attached(controller);
    let describe = |ns: Option<&Namespace>| match ns {
        Some(ns) => identify_namespace(drive, ns).emit(),
        // Inactive: all zeros (section 5.15.2.1).
        None => Box::new([0; IDENTIFY_LEN]),
    };
    // A valid namespace identifier, but not one of those asked about.
    let valid = namespaces.is_valid(namespace);
    let ports = 0..u16::from(drive.params.ports);
    Ok(match what {
        cns::CONTROLLER => identify_controller(drive, controller).emit(),
        cns::NAMESPACE if valid => describe(known.filter(here)),
        cns::ALLOCATED_NAMESPACE if valid => describe(known),
        cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES if namespace < ALL_NAMESPACES - 1 => {
            let all = what == cns::ALLOCATED_NAMESPACES;
            let listed = namespaces.iter().filter(|ns| ns.id > namespace && (all || here(ns)));
            emit_namespaces(listed.map(|ns| ns.id))
        }
        cns::NAMESPACE_DESCRIPTORS => match known.filter(here) {
            Some(ns) => emit_descriptors(&identify_namespace(drive, ns)),
            None => return Err(Status::INVALID_NAMESPACE.dnr()),
        },
        cns::ATTACHED_CONTROLLERS if valid => {
            let attached = ports.filter(|&port| known.is_some_and(|ns| ns.is_attached(port)));
            emit_controllers(&attached.collect::<Vec<_>>())
        }
        cns::CONTROLLERS => emit_controllers(&ports.collect::<Vec<_>>()),
        cns::NAMESPACE
        | cns::ALLOCATED_NAMESPACE
        | cns::ACTIVE_NAMESPACES
        | cns::ALLOCATED_NAMESPACES
        | cns::ATTACHED_CONTROLLERS => return Err(Status::INVALID_NAMESPACE.dnr()),
        _ => return Err(Status::INVALID_FIELD.dnr()),
    })
}

/// The IEEE OUI of a PCI vendor (registry of MA-L assignments); 0 if unknown.
fn oui(vendor: u16) -> u32 {
    match vendor {
        0x8086 => 0x5c_d2e4,
        0x144d => 0x00_2538,
        _ => 0,
    }
}

fn identify_controller(drive: &Drive, number: u16) -> IdentifyController {
    let params = &drive.params;
    let several = params.ports > 1;
    let namespaces = drive.namespaces.borrow();
    let allocated: u64 = namespaces.iter().map(|ns| ns.bytes).sum();
    IdentifyController {
        vendor: params.ids.0,
        subsystem_vendor: params.ids.0,
        serial: params.serial.clone(),
        model: params.model.clone(),
        firmware: params.firmware.clone(),
        arbitration_burst: 3,
        oui: oui(params.ids.0),
        multi_path: if several { identify::CMIC_PORTS | identify::CMIC_CONTROLLERS } else { 0 },
        max_transfer_shift: params.max_transfer_shift,
        controller: number,
        version: VERSION_1_4,
        events: 0,
        kind: 1,
        admin_commands: identify::OACS_FORMAT | identify::OACS_NAMESPACES,
        abort_limit: params.aborts.saturating_sub(1),
        event_limit: params.event_requests.saturating_sub(1),
        // Effects log and extended data for Get Log Page.
        log_attributes: 0b110,
        error_entries: ERRORS as u8 - 1,
        firmware_updates: ONE_FIRMWARE_SLOT,
        power_states: 0,
        warning_temperature: WARNING_TEMPERATURE,
        critical_temperature: CRITICAL_TEMPERATURE,
        total_capacity: u128::from(namespaces.capacity()),
        unallocated_capacity: u128::from(namespaces.capacity().saturating_sub(allocated)),
        submission_entry: 0x66,
        completion_entry: 0x44,
        namespaces: namespaces.most(),
        commands: identify::ONCS_COMPARE | identify::ONCS_DATASET | identify::ONCS_WRITE_ZEROES,
        format: 0,
        volatile_write_cache: drive.has_volatile_cache(),
        atomic_write: params.atomic_blocks,
        atomic_write_power_fail: params.atomic_blocks,
        sgl: identify::SGLS_SUPPORTED | identify::SGLS_BIT_BUCKET,
        subsystem_name: format!("nqn.2014-08.org.nvmexpress:{}", params.serial),
        max_power: 2500,
    }
}

fn identify_namespace(drive: &Drive, namespace: &Namespace) -> IdentifyNamespace {
    let vendor = drive.params.ids.0;
    let formats = FORMATS.map(|block_shift| LbaFormat { block_shift, ..LbaFormat::default() });
    // No two drives of a host share it; their serial numbers differ.
    let extension =
        u64::from(crc32fast::hash(drive.params.serial.as_bytes())) << 8 | u64::from(namespace.id as u8);
    let unique = u64::from(oui(vendor)) << 40 | extension;
    IdentifyNamespace {
        size: namespace.blocks(),
        capacity: namespace.blocks(),
        utilisation: namespace.blocks(),
        features: 0,
        format: FORMATS.iter().position(|&shift| shift == namespace.shift).unwrap_or(0) as u8,
        shared: drive.params.ports > 1,
        deallocated: 1,
        bytes: u128::from(namespace.bytes),
        // The OUI is at the start of EUI-64, and in the second half of NGUID.
        guid: u128::from(vendor) << 64 | u128::from(unique),
        eui: unique,
        formats: formats.to_vec(),
    }
}
