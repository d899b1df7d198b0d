//! Paths by which packets leave.

use platform::cpu::Cpu;
use platform::net::Packet;

/// A queue of one path, as far as the order of packets across paths depends on it.
pub(super) trait TxPath {
    /// The count at which a packet put in now will have left.
    fn mark_behind(&self, packet: &Packet) -> u32;

    /// Whether the packet with this mark has left, even if its completion has not been handled yet. A packet that had
    /// its mark recorded and found no room counts as the last one that did.
    fn is_past(&self, cpu: &Cpu, mark: u32) -> bool;

    /// Whether all packets have left and are handled.
    fn is_empty(&self, cpu: &Cpu) -> bool;
}
