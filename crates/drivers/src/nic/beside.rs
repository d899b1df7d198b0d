//! The seam for a second transmit path beside the rings.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, Node};
use platform::net::{NetCore, OwnCounters, Packet};
use settings::PacketSelect;

use super::channel::Channel;
use super::channels::Channels;
use super::counted::Counted;

/// A transmit path of one function beside its rings. Each packet is first offered to it.
pub(super) trait TxBeside {
    /// Creates and starts what the next channel needs, with its memory on `node`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn start(&self, cpu: &Cpu, channel: u16, node: Node) -> Result<(), Error>;

    /// The function, called `name`, runs with so many channels.
    fn started(&self, name: &str, channels: usize);

    /// Stops a channel.
    fn stop(&self, cpu: &Cpu, channel: u16);

    /// Frees all memory. The device must have stopped.
    fn free(&self, cpu: &Cpu);

    /// Changes which packets take this path. Packets in flight leave first.
    fn set_select(&self, cpu: &Cpu, channels: &[Rc<Channel>], select: PacketSelect);

    /// Sends a packet if it is to take this path.
    fn offer(&self, cpu: &Cpu, channels: &[Rc<Channel>], channel: u16, packet: Packet) -> Offered;

    /// Wakes channels whose packets can go now. Called after a channel has polled its ring.
    fn poll<'a>(
        &'a self,
        cpu: &'a Cpu,
        channels: &'a Channels,
        channel: u16,
        core: &'a dyn NetCore,
    ) -> Async<'a, ()>;

    /// Asks the device again about what a channel waits for. Returns true if it no longer has to wait, because an interrupt
    /// or the request for one was lost.
    fn ask_again<'a>(&'a self, cpu: &'a Cpu, channel: u16) -> Async<'a, bool>;

    /// The device's counters of this path: those of the outcome of each transmit, and others.
    fn counters(&self) -> [&'static [usize]; 2];

    /// Frames that the device has dropped, and all values about transmits, for `ethtool -S`.
    fn tx_statistics<'a>(
        &'a self,
        cpu: &'a Cpu,
        counted: &'a Counted,
        is_up: bool,
    ) -> Async<'a, (u64, OwnCounters)>;

    /// Other values.
    fn statistics<'a>(&'a self, cpu: &'a Cpu, counted: &'a Counted, is_up: bool) -> Async<'a, OwnCounters>;
}

/// Outcome of an attempt to send beside the rings.
pub(super) enum Offered {
    /// Sent, with so many bytes.
    Sent(u64),
    /// Has to go through the ring.
    Declined(Packet),
    /// Cannot go yet; its channel is woken when it can.
    NotYet(Packet),
}
