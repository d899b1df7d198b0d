//! Ethernet ports of a device, as the device sees them.
//!
//! A device may have Ethernet ports ([`Device::ethernet_ports`]). It sends through the [`EthernetBus`] from
//! [`DeviceBus::ethernet`] and receives by [`Device::frame_received`]. A frame is the bytes from the destination
//! address to the check sequence, which the device itself computes and checks.
//!
//! [`Device::ethernet_ports`]: crate::device::Device::ethernet_ports
//! [`Device::frame_received`]: crate::device::Device::frame_received
//! [`DeviceBus::ethernet`]: crate::device::DeviceBus::ethernet

use units::{BitRate, Duration, Time};

/// An Ethernet port of a device, numbered from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EthernetPort(pub u8);

/// Properties of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetPortInfo {
    /// Its speed.
    pub rate: BitRate,
    /// From a frame's last bit at the port until the device is told. A constant pipeline delay in front of the
    /// device, modelled without an event.
    pub receive_latency: Duration,
}

/// Actions that a device can take at its Ethernet ports.
pub trait EthernetBus {
    /// Sends a frame after all earlier ones, and not before `ready`. Returns when its last bit will have left; the
    /// device itself limits how many frames wait. `None` if the link is down and the frame is lost.
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time>;

    /// Whether the link is up.
    fn has_carrier(&self, port: EthernetPort) -> bool;
}
