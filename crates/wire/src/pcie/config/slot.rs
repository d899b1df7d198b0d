//! Hot-plug slot registers in the PCI Express capability (base spec 7.5.3.9 to 7.5.3.11). Offsets are relative to that
//! capability's header.

use super::image::Image;

/// Slot capabilities (7.5.3.9): what the slot has, and its number.
pub const CAPABILITIES: u16 = 0x14;
/// Slot control (7.5.3.10): power, indicators, enabled interrupts.
pub const CONTROL: u16 = 0x18;
/// Slot status (7.5.3.11): events since software last looked, and whether a device is present.
pub const STATUS: u16 = 0x1a;

/// Control: interrupts on the events that are enabled.
pub const CONTROL_INTERRUPTS: u16 = 1 << 5;
/// Control: enables [`STATUS_LINK_CHANGED`], whose status bit is at another position.
pub const CONTROL_LINK_CHANGED: u16 = 1 << 12;
/// Control: cuts the slot's power.
pub const CONTROL_POWER_OFF: u16 = 1 << 10;
/// Status: a device was plugged in or removed.
pub const STATUS_PRESENCE_CHANGED: u16 = 1 << 3;
/// Status: the last command has completed.
pub const STATUS_COMMAND_COMPLETED: u16 = 1 << 4;
/// Status: events that the control bits at the same positions enable.
pub const STATUS_ENABLED_IN_PLACE: u16 = 0x1f;
/// Status: the slot is occupied.
pub const STATUS_PRESENT: u16 = 1 << 6;
/// Status: the link state has changed.
pub const STATUS_LINK_CHANGED: u16 = 1 << 8;

/// Capabilities of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotParams {
    /// Physical slot number, 0 to 8191.
    pub number: u16,
    /// Power can be switched.
    pub power_controller: bool,
    /// Has an attention button and an attention indicator.
    pub attention_button: bool,
    /// Supports surprise removal.
    pub surprise: bool,
    /// Slot power limit in watts, 0 to 239.
    pub power_limit_w: u8,
}

pub(super) fn emit(image: &mut Image, at: u16, slot: &SlotParams) {
    let bit = |on: bool, n: u32| u32::from(on) << n;
    image
        .value32(
            at + CAPABILITIES,
            bit(slot.attention_button, 0)
                | bit(slot.power_controller, 1)
                | bit(slot.attention_button, 3)
                | bit(slot.power_controller, 4)
                | bit(slot.surprise, 5)
                | 1 << 6
                | u32::from(slot.power_limit_w) << 7
                | u32::from(slot.number & 0x1fff) << 19,
        )
        // Indicators are off after reset.
        .value16(at + CONTROL, 0b11 << 6 | 0b11 << 8)
        .rw16(at + CONTROL, if slot.power_controller { 0x17ff } else { 0x13ff })
        .rw1c16(at + STATUS, 0x011f);
}
