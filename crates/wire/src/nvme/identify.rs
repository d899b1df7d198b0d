//! Identify data structures and lists (section 5.15.2).

use super::IDENTIFY_LEN;
use super::bytes::{put, put_text, text_at, u16_at, u32_at, u64_at, u128_at};

/// Optional admin command (OACS): Format NVM.
pub const OACS_FORMAT: u16 = 1 << 1;
/// Optional admin command (OACS): Namespace Management and Attachment.
pub const OACS_NAMESPACES: u16 = 1 << 3;
/// Optional command (ONCS): Compare.
pub const ONCS_COMPARE: u16 = 1 << 0;
/// Optional command (ONCS): Dataset Management.
pub const ONCS_DATASET: u16 = 1 << 2;
/// Optional command (ONCS): Write Zeroes.
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// SGLs (SGLS): supported, at any alignment.
pub const SGLS_SUPPORTED: u32 = 1;
/// SGLs (SGLS): the bit bucket descriptor is supported.
pub const SGLS_BIT_BUCKET: u32 = 1 << 16;
/// Multi-path (CMIC): the subsystem has several ports.
pub const CMIC_PORTS: u8 = 1;
/// Multi-path (CMIC): the subsystem has several controllers.
pub const CMIC_CONTROLLERS: u8 = 2;

/// The Identify Controller data structure (CNS 01h), as far as this crate's controllers and drivers use it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentifyController {
    /// PCI vendor.
    pub vendor: u16,
    /// PCI subsystem vendor.
    pub subsystem_vendor: u16,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Model number, at most 40 characters.
    pub model: String,
    /// Firmware revision, at most 8 characters.
    pub firmware: String,
    /// IEEE OUI of the manufacturer, 24 bits (IEEE).
    pub oui: u32,
    /// Recommended arbitration burst, as a power of two (RAB).
    pub arbitration_burst: u8,
    /// Multi-path capabilities (CMIC).
    pub multi_path: u8,
    /// Largest data transfer: log2, in units of the smallest page size; 0 for no limit (MDTS).
    pub max_transfer_shift: u8,
    /// The controller's number in its subsystem (CNTLID).
    pub controller: u16,
    /// Version, as in the register VS (VER).
    pub version: u32,
    /// Optional events (OAES).
    pub events: u32,
    /// Type: 1 for an I/O controller (CNTRLTYPE).
    pub kind: u8,
    /// Optional admin commands (OACS).
    pub admin_commands: u16,
    /// Maximum concurrent Abort commands, minus one (ACL).
    pub abort_limit: u8,
    /// Maximum outstanding Asynchronous Event Requests, minus one (AERL).
    pub event_limit: u8,
    /// Log page attributes (LPA).
    pub log_attributes: u8,
    /// Entries of the error log, minus one (ELPE).
    pub error_entries: u8,
    /// Firmware: bit 0 for a read-only slot 1, number of slots in bits 3 to 1 (FRMW).
    pub firmware_updates: u8,
    /// Number of power states, minus one (NPSS).
    pub power_states: u8,
    /// Warning temperature threshold in kelvin (WCTEMP).
    pub warning_temperature: u16,
    /// Critical temperature threshold in kelvin (CCTEMP).
    pub critical_temperature: u16,
    /// Total capacity in bytes (TNVMCAP).
    pub total_capacity: u128,
    /// Unallocated capacity in bytes (UNVMCAP).
    pub unallocated_capacity: u128,
    /// Log2 of the size of submission queue entries: required in bits 3 to 0, maximum in 7 to 4 (SQES).
    pub submission_entry: u8,
    /// The same for completion queues (CQES).
    pub completion_entry: u8,
    /// Largest namespace identifier (NN).
    pub namespaces: u32,
    /// Optional commands (ONCS).
    pub commands: u16,
    /// Format NVM attributes (FNA).
    pub format: u8,
    /// There is a volatile write cache (VWC bit 0).
    pub volatile_write_cache: bool,
    /// Blocks written atomically in normal operation, minus one (AWUN).
    pub atomic_write: u16,
    /// Blocks written atomically across power failure, minus one (AWUPF).
    pub atomic_write_power_fail: u16,
    /// SGL support (SGLS).
    pub sgl: u32,
    /// NVMe qualified name of the subsystem.
    pub subsystem_name: String,
    /// Maximum power in power state 0, in units of 10 mW.
    pub max_power: u16,
}

impl IdentifyController {
    /// Reads the structure.
    pub fn parse(b: &[u8; IDENTIFY_LEN]) -> Self {
        let name = text_at(b, 768, 256);
        Self {
            vendor: u16_at(b, 0),
            subsystem_vendor: u16_at(b, 2),
            serial: text_at(b, 4, 20),
            model: text_at(b, 24, 40),
            firmware: text_at(b, 64, 8),
            arbitration_burst: b[72],
            oui: u32::from_le_bytes([b[73], b[74], b[75], 0]),
            multi_path: b[76],
            max_transfer_shift: b[77],
            controller: u16_at(b, 78),
            version: u32_at(b, 80),
            events: u32_at(b, 92),
            kind: b[111],
            admin_commands: u16_at(b, 256),
            abort_limit: b[258],
            event_limit: b[259],
            log_attributes: b[261],
            firmware_updates: b[260],
            error_entries: b[262],
            power_states: b[263],
            warning_temperature: u16_at(b, 266),
            critical_temperature: u16_at(b, 268),
            total_capacity: u128_at(b, 280),
            unallocated_capacity: u128_at(b, 296),
            submission_entry: b[512],
            completion_entry: b[513],
            namespaces: u32_at(b, 516),
            commands: u16_at(b, 520),
            format: b[524],
            volatile_write_cache: b[525] & 1 == 1,
            atomic_write: u16_at(b, 526),
            atomic_write_power_fail: u16_at(b, 528),
            sgl: u32_at(b, 536),
            // The name ends at a zero byte, which decodes as a question mark.
            subsystem_name: name.split('?').next().unwrap_or("").to_owned(),
            max_power: u16_at(b, 2048),
        }
    }

    /// Writes the structure.
    pub fn emit(&self) -> Box<[u8; IDENTIFY_LEN]> {
        let mut bytes = Box::new([0; IDENTIFY_LEN]);
        let b = &mut bytes[..];
        put(b, 0, &self.vendor.to_le_bytes());
        put(b, 2, &self.subsystem_vendor.to_le_bytes());
        put_text(b, 4, 20, &self.serial);
        put_text(b, 24, 40, &self.model);
        put_text(b, 64, 8, &self.firmware);
        b[72] = self.arbitration_burst;
        put(b, 73, &self.oui.to_le_bytes()[..3]);
        b[76] = self.multi_path;
        b[77] = self.max_transfer_shift;
        put(b, 78, &self.controller.to_le_bytes());
        put(b, 80, &self.version.to_le_bytes());
        put(b, 92, &self.events.to_le_bytes());
        b[111] = self.kind;
        put(b, 256, &self.admin_commands.to_le_bytes());
        b[258] = self.abort_limit;
        b[259] = self.event_limit;
        b[261] = self.log_attributes;
        b[260] = self.firmware_updates;
        b[262] = self.error_entries;
        b[263] = self.power_states;
        put(b, 266, &self.warning_temperature.to_le_bytes());
        put(b, 268, &self.critical_temperature.to_le_bytes());
        put(b, 280, &self.total_capacity.to_le_bytes());
        put(b, 296, &self.unallocated_capacity.to_le_bytes());
        b[512] = self.submission_entry;
        b[513] = self.completion_entry;
        put(b, 516, &self.namespaces.to_le_bytes());
        put(b, 520, &self.commands.to_le_bytes());
        b[524] = self.format;
        b[525] = u8::from(self.volatile_write_cache);
        put(b, 526, &self.atomic_write.to_le_bytes());
        put(b, 528, &self.atomic_write_power_fail.to_le_bytes());
        put(b, 536, &self.sgl.to_le_bytes());
        let name: Vec<u8> = self.subsystem_name.bytes().take(223).collect();
        put(b, 768, &name);
        put(b, 2048, &self.max_power.to_le_bytes());
        bytes
    }
}

/// An LBA format ("LBA Format Data Structure").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LbaFormat {
    /// Metadata bytes per block.
    pub metadata: u16,
    /// Log2 of the block size in bytes; 0 for an unavailable format.
    pub block_shift: u8,
    /// Relative performance, 0 best.
    pub performance: u8,
}

/// The Identify Namespace data structure (CNS 00h), as far as used here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentifyNamespace {
    /// Blocks (NSZE).
    pub size: u64,
    /// Blocks that may be allocated (NCAP).
    pub capacity: u64,
    /// Blocks that are allocated (NUSE).
    pub utilisation: u64,
    /// Features (NSFEAT).
    pub features: u8,
    /// LBA format in use (FLBAS, bits 3 to 0).
    pub format: u8,
    /// May be attached to several controllers (NMIC bit 0).
    pub shared: bool,
    /// What deallocated blocks read as: 1 for zeroes (DLFEAT).
    pub deallocated: u8,
    /// Capacity in bytes (NVMCAP).
    pub bytes: u128,
    /// Unique identifier, 16 bytes (NGUID).
    pub guid: u128,
    /// Unique identifier, 8 bytes (EUI64).
    pub eui: u64,
    /// LBA formats, at most 16.
    pub formats: Vec<LbaFormat>,
}

impl IdentifyNamespace {
    /// The format in use.
    pub fn current_format(&self) -> LbaFormat {
        self.formats.get(usize::from(self.format)).copied().unwrap_or_default()
    }

    /// Reads the structure.
    pub fn parse(b: &[u8; IDENTIFY_LEN]) -> Self {
        let formats = (0..=usize::from(b[25] & 0xf))
            .map(|n| {
                let at = 128 + 4 * n;
                LbaFormat { metadata: u16_at(b, at), block_shift: b[at + 2], performance: b[at + 3] & 3 }
            })
            .collect();
        let mut guid = [0; 16];
        guid.copy_from_slice(&b[104..120]);
        Self {
            size: u64_at(b, 0),
            capacity: u64_at(b, 8),
            utilisation: u64_at(b, 16),
            features: b[24],
            format: b[26] & 0xf,
            shared: b[30] & 1 == 1,
            deallocated: b[33] & 7,
            bytes: u128_at(b, 48),
            guid: u128::from_be_bytes(guid),
            eui: u64_at(b, 120).swap_bytes(),
            formats,
        }
    }

    /// Writes the structure.
    pub fn emit(&self) -> Box<[u8; IDENTIFY_LEN]> {
        let mut bytes = Box::new([0; IDENTIFY_LEN]);
        let b = &mut bytes[..];
        put(b, 0, &self.size.to_le_bytes());
        put(b, 8, &self.capacity.to_le_bytes());
        put(b, 16, &self.utilisation.to_le_bytes());
        b[24] = self.features;
        b[25] = self.formats.len().clamp(1, 16) as u8 - 1;
        b[26] = self.format & 0xf;
        b[30] = u8::from(self.shared);
        b[33] = self.deallocated & 7;
        put(b, 48, &self.bytes.to_le_bytes());
        put(b, 104, &self.guid.to_be_bytes());
        put(b, 120, &self.eui.to_be_bytes());
        for (n, format) in self.formats.iter().take(16).enumerate() {
            let at = 128 + 4 * n;
            put(b, at, &format.metadata.to_le_bytes());
            b[at + 2] = format.block_shift;
            b[at + 3] = format.performance & 3;
        }
        bytes
    }
}

/// A list of at most 1024 namespaces, terminated by zero ("Namespace List").
pub fn emit_namespaces(namespaces: impl IntoIterator<Item = u32>) -> Box<[u8; IDENTIFY_LEN]> {
    let mut bytes = Box::new([0; IDENTIFY_LEN]);
    for (n, namespace) in namespaces.into_iter().take(1024).enumerate() {
        put(&mut bytes[..], 4 * n, &namespace.to_le_bytes());
    }
    bytes
}

/// Reads a list of namespaces.
pub fn parse_namespaces(bytes: &[u8; IDENTIFY_LEN]) -> Vec<u32> {
    (0..1024).map(|n| u32_at(bytes, 4 * n)).take_while(|&namespace| namespace != 0).collect()
}

/// A list of at most 2047 controllers, preceded by their number ("Controller List").
pub fn emit_controllers(controllers: &[u16]) -> Box<[u8; IDENTIFY_LEN]> {
    let mut bytes = Box::new([0; IDENTIFY_LEN]);
    let count = controllers.len().min(2047);
    put(&mut bytes[..], 0, &(count as u16).to_le_bytes());
    for (n, controller) in controllers[..count].iter().enumerate() {
        put(&mut bytes[..], 2 + 2 * n, &controller.to_le_bytes());
    }
    bytes
}

/// Reads a list of controllers.
pub fn parse_controllers(bytes: &[u8; IDENTIFY_LEN]) -> Vec<u16> {
    let count = usize::from(u16_at(bytes, 0)).min(2047);
    (0..count).map(|n| u16_at(bytes, 2 + 2 * n)).collect()
}

/// The namespace identification descriptors (CNS 03h): EUI64 and NGUID.
pub fn emit_descriptors(namespace: &IdentifyNamespace) -> Box<[u8; IDENTIFY_LEN]> {
    let mut bytes = Box::new([0; IDENTIFY_LEN]);
    let b = &mut bytes[..];
    b[..2].copy_from_slice(&[1, 8]);
    put(b, 4, &namespace.eui.to_be_bytes());
    b[12..14].copy_from_slice(&[2, 16]);
    put(b, 16, &namespace.guid.to_be_bytes());
    bytes
}
