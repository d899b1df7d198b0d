//! Log pages (section 5.14).

use wire::nvme::admin::opcode;
use wire::nvme::log::{self, ErrorEntry, FirmwareSlotLog};
use wire::nvme::{Status, io};

use super::drive::Drive;
use super::events::{AsyncEvents, ERRORS};

pub(super) fn page(drive: &Drive, events: &AsyncEvents, id: u8) -> Result<Vec<u8>, Status> {
    Ok(match id {
        log::ERROR => {
            let mut entries: Vec<ErrorEntry> = events.errors().copied().collect();
            entries.resize(ERRORS, ErrorEntry::default());
            entries.iter().flat_map(ErrorEntry::emit).collect()
        }
        log::SMART => {
            let smart = *drive.smart.borrow();
            let thousands = |units: u128| units.div_ceil(1000);
            let smart = log::SmartLog {
                data_units_read: thousands(smart.data_units_read),
                data_units_written: thousands(smart.data_units_written),
                ..smart
            };
            smart.emit().to_vec()
        }
        log::FIRMWARE_SLOT => {
            FirmwareSlotLog { active: 1, revision: drive.params.firmware.clone() }.emit().to_vec()
        }
        log::CHANGED_NAMESPACES => vec![0; log::CHANGED_NAMESPACES_LEN],
        log::COMMAND_EFFECTS => effects().to_vec(),
        _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
    })
}

fn effects() -> Box<[u8; 4096]> {
    /// Supported (CSUPP).
    const SUPPORTED: u32 = 1;
    /// Changes user data (LBCC).
    const CHANGES_DATA: u32 = 1 << 1;
    /// Changes the namespace inventory (NIC).
    const CHANGES_INVENTORY: u32 = 1 << 3;
    let plain = |opcode| (opcode, SUPPORTED);
    let admin = [
        plain(opcode::DELETE_SQ),
        plain(opcode::CREATE_SQ),
        plain(opcode::GET_LOG_PAGE),
        plain(opcode::DELETE_CQ),
        plain(opcode::CREATE_CQ),
        plain(opcode::IDENTIFY),
        plain(opcode::ABORT),
        plain(opcode::SET_FEATURES),
        plain(opcode::GET_FEATURES),
        plain(opcode::ASYNC_EVENT_REQUEST),
        (opcode::NAMESPACE_MANAGEMENT, SUPPORTED | CHANGES_INVENTORY),
        (opcode::NAMESPACE_ATTACHMENT, SUPPORTED | CHANGES_INVENTORY),
        (opcode::FORMAT, SUPPORTED | CHANGES_DATA),
    ];
    let io = [
        plain(io::opcode::FLUSH),
        plain(io::opcode::READ),
        plain(io::opcode::COMPARE),
        (io::opcode::WRITE, SUPPORTED | CHANGES_DATA),
        (io::opcode::WRITE_ZEROES, SUPPORTED | CHANGES_DATA),
        (io::opcode::DATASET_MANAGEMENT, SUPPORTED | CHANGES_DATA),
    ];
    log::command_effects(&admin, &io)
}
