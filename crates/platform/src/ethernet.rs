//! A device's Ethernet ports, as the device sees them.
//!
//! Beside its functions a device may have Ethernet ports ([`Device::ethernet_ports`]). It sends by the
//! [`EthernetBus`] that [`DeviceBus::ethernet`] gives it, and what arrives comes by [`Device::frame_received`].
//! Frames are bytes from the destination address to the check sequence, which is the device's business.
//!
//! [`Device::ethernet_ports`]: crate::device::Device::ethernet_ports
//! [`Device::frame_received`]: crate::device::Device::frame_received
//! [`DeviceBus::ethernet`]: crate::device::DeviceBus::ethernet

use units::{BitRate, Duration, Time};

/// One of a device's Ethernet ports, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EthernetPort(pub u8);

/// What a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetPortInfo {
    /// Its speed.
    pub rate: BitRate,
    /// From a frame's last bit reaching the port until the device is told.
    ///
    /// A constant pipeline in front of the device: told here, it costs no event.
    pub receive_latency: Duration,
}

/// What a device can do at its Ethernet ports.
pub trait EthernetBus {
    /// Sends a frame, behind those that were sent before and not before `ready`.
    ///
    /// Returns when its last bit will have left: how many frames wait is the device's to limit. `None` if there is
    /// no carrier; the frame is lost.
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time>;

    /// Whether something that is switched on is at the other end.
    fn has_carrier(&self, port: EthernetPort) -> bool;
}
