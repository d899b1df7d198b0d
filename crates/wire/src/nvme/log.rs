//! Log pages (section 5.14.1).

use super::bytes::{put, put_text, text_at, u16_at, u32_at, u64_at, u128_at};
use super::status::Status;

/// Error Information.
pub const ERROR: u8 = 0x01;
/// SMART and Health Information.
pub const SMART: u8 = 0x02;
/// Firmware Slot Information.
pub const FIRMWARE_SLOT: u8 = 0x03;
/// Changed Namespace List.
pub const CHANGED_NAMESPACES: u8 = 0x04;
/// Commands Supported and Effects.
pub const COMMAND_EFFECTS: u8 = 0x05;

/// Bytes of an entry of the error log.
pub const ERROR_LEN: usize = 64;
/// Bytes of the SMART log.
pub const SMART_LEN: usize = 512;
/// Bytes of the list of changed namespaces.
pub const CHANGED_NAMESPACES_LEN: usize = 4096;
/// Bytes of the log of commands and effects.
pub const COMMAND_EFFECTS_LEN: usize = 4096;
/// Bytes of the firmware slot log.
pub const FIRMWARE_SLOT_LEN: usize = 512;

/// An entry of the error log (section 5.14.1.1). Unused entries have count 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorEntry {
    /// Error count, starting at 1.
    pub count: u64,
    /// Submission queue of the command; all ones if not applicable.
    pub queue: u16,
    /// Identifier of the command; all ones if not applicable.
    pub command: u16,
    /// Status of the command.
    pub status: Status,
    /// Location of the invalid parameter in the command: byte in bits 7 to 0, bit in 10 to 8; all ones if unknown.
    pub location: u16,
    /// First block with an error.
    pub lba: u64,
    /// Namespace of the command.
    pub namespace: u32,
}

impl ErrorEntry {
    /// Reads an entry.
    pub fn parse(bytes: &[u8; ERROR_LEN]) -> Self {
        Self {
            count: u64_at(bytes, 0),
            queue: u16_at(bytes, 8),
            command: u16_at(bytes, 10),
            status: Status::from_bits(u16_at(bytes, 12) >> 1),
            location: u16_at(bytes, 14),
            lba: u64_at(bytes, 16),
            namespace: u32_at(bytes, 24),
        }
    }

    /// Writes an entry.
    pub fn emit(&self) -> [u8; ERROR_LEN] {
        let mut bytes = [0; ERROR_LEN];
        put(&mut bytes, 0, &self.count.to_le_bytes());
        put(&mut bytes, 8, &self.queue.to_le_bytes());
        put(&mut bytes, 10, &self.command.to_le_bytes());
        put(&mut bytes, 12, &(self.status.to_bits() << 1).to_le_bytes());
        put(&mut bytes, 14, &self.location.to_le_bytes());
        put(&mut bytes, 16, &self.lba.to_le_bytes());
        put(&mut bytes, 24, &self.namespace.to_le_bytes());
        bytes
    }
}

/// The SMART log (section 5.14.1.2), without wear and environment data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SmartLog {
    /// Critical warnings, one bit each.
    pub critical_warning: u8,
    /// Temperature in kelvin.
    pub temperature: u16,
    /// Spare capacity left, in percent.
    pub available_spare: u8,
    /// Spare capacity below which a warning is due, in percent.
    pub spare_threshold: u8,
    /// Estimate of life used, in percent.
    pub percentage_used: u8,
    /// Thousands of 512-byte units read by the host, rounded up.
    pub data_units_read: u128,
    /// Thousands of 512-byte units written by the host, rounded up.
    pub data_units_written: u128,
    /// Read and compare commands completed.
    pub host_reads: u128,
    /// Write commands completed.
    pub host_writes: u128,
    /// Times that the power came on.
    pub power_cycles: u128,
    /// Shutdowns without prior notification.
    pub unsafe_shutdowns: u128,
    /// Unrecovered data integrity errors.
    pub media_errors: u128,
    /// Entries added to the error log over the controller's life.
    pub error_entries: u128,
}

impl SmartLog {
    /// Reads the log.
    pub fn parse(bytes: &[u8; SMART_LEN]) -> Self {
        Self {
            critical_warning: bytes[0],
            temperature: u16_at(bytes, 1),
            available_spare: bytes[3],
            spare_threshold: bytes[4],
            percentage_used: bytes[5],
            data_units_read: u128_at(bytes, 32),
            data_units_written: u128_at(bytes, 48),
            host_reads: u128_at(bytes, 64),
            host_writes: u128_at(bytes, 80),
            power_cycles: u128_at(bytes, 112),
            unsafe_shutdowns: u128_at(bytes, 144),
            media_errors: u128_at(bytes, 160),
            error_entries: u128_at(bytes, 176),
        }
    }

    /// Writes the log.
    pub fn emit(&self) -> [u8; SMART_LEN] {
        let mut bytes = [0; SMART_LEN];
        bytes[0] = self.critical_warning;
        put(&mut bytes, 1, &self.temperature.to_le_bytes());
        bytes[3..6].copy_from_slice(&[self.available_spare, self.spare_threshold, self.percentage_used]);
        let counters = [
            (32, self.data_units_read),
            (48, self.data_units_written),
            (64, self.host_reads),
            (80, self.host_writes),
            (112, self.power_cycles),
            (144, self.unsafe_shutdowns),
            (160, self.media_errors),
            (176, self.error_entries),
        ];
        for (at, counter) in counters {
            put(&mut bytes, at, &counter.to_le_bytes());
        }
        bytes
    }
}

/// The firmware slot log (section 5.14.1.3) of a controller with one slot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirmwareSlotLog {
    /// Active slot, from 1.
    pub active: u8,
    /// Revision in slot 1, at most 8 characters.
    pub revision: String,
}

impl FirmwareSlotLog {
    /// Reads the log.
    pub fn parse(bytes: &[u8; FIRMWARE_SLOT_LEN]) -> Self {
        Self { active: bytes[0] & 7, revision: text_at(bytes, 8, 8) }
    }

    /// Writes the log.
    pub fn emit(&self) -> [u8; FIRMWARE_SLOT_LEN] {
        let mut bytes = [0; FIRMWARE_SLOT_LEN];
        bytes[0] = self.active & 7;
        put_text(&mut bytes, 8, 8, &self.revision);
        bytes
    }
}

/// The command effects log ("Commands Supported and Effects"): a doubleword per opcode; bit 0 means that it is
/// supported.
///
/// `admin` and `io` are pairs of opcode and effects.
pub fn command_effects(admin: &[(u8, u32)], io: &[(u8, u32)]) -> Box<[u8; COMMAND_EFFECTS_LEN]> {
    let mut bytes = Box::new([0; COMMAND_EFFECTS_LEN]);
    for (base, commands) in [(0, admin), (1024, io)] {
        for &(opcode, effects) in commands {
            put(&mut bytes[..], base + 4 * usize::from(opcode), &effects.to_le_bytes());
        }
    }
    bytes
}
