//! Effect of descriptors, doorbells and interrupts on goodput, for three NICs.

use crate::Link;
use crate::memory::WireBytes;
use units::{BitRate, Bytes};

/// Bytes of a descriptor, and of its write-back.
const DESCRIPTOR: u64 = 16;
/// A ring pointer register.
const POINTER: u64 = 4;
/// The data of a message-signalled interrupt.
const MSI: u64 = 4;

/// How a NIC and its driver batch their work, in packets per action.
/// Values of the modern NIC: Intel 82599 with ixgbe's defaults, as
/// pcie-bench's section 3 has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nic {
    /// TX descriptors per read.
    pub tx_fetch: u32,
    /// TX descriptors per write-back; 0 for none.
    pub tx_write_back: u32,
    /// Packets per update of the transmit tail pointer, and per read of the head.
    pub tx_doorbell: u32,
    /// Free receive buffers posted per doorbell.
    pub free_list: u32,
    /// Packets per read of the receive head pointer.
    pub rx_pointer: u32,
    /// Packets per interrupt; 0 for none.
    pub interrupt: u32,
    /// Whether the driver reads the ring's head pointers from the device.
    pub reads_pointers: bool,
}

/// Driver of the modern NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The kernel's driver: interrupts, head pointers read.
    Kernel,
    /// DPDK's poll-mode driver: neither, and transmits in batches.
    Dpdk,
}

/// Direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// From host memory to the wire.
    Transmit,
    /// From the wire to host memory.
    Receive,
    /// One packet each way; rates are per direction.
    Both,
}

/// Kinds of transfers per packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Ring pointers that the driver writes.
    Doorbells,
    /// Reads of descriptors.
    Descriptors,
    /// The packet's own bytes, read or written by the NIC.
    Packets,
    /// Descriptors or completions that the NIC writes.
    WriteBacks,
    /// Message-signalled interrupts, one per [`Nic::interrupt`] packets.
    Interrupts,
    /// Ring pointers that the driver reads.
    Pointers,
}

/// Whether to repeat an oversight of the public code, which the published curves contain: it omits the read requests
/// for receive descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Omission {
    /// Count every TLP.
    None,
    /// Leave out the requests that fetch receive descriptors.
    RxDescriptorReads,
}

impl Nic {
    /// A NIC that does everything per packet.
    pub const fn simple() -> Self {
        Self {
            tx_fetch: 1,
            tx_write_back: 0,
            tx_doorbell: 1,
            free_list: 1,
            rx_pointer: 1,
            interrupt: 1,
            reads_pointers: true,
        }
    }

    /// A NIC that fetches and writes back descriptors in batches.
    pub const fn modern(driver: Driver) -> Self {
        let kernel = Self {
            tx_fetch: 40,
            tx_write_back: 8,
            tx_doorbell: 1,
            free_list: 32,
            rx_pointer: 8,
            interrupt: 32,
            reads_pointers: true,
        };
        match driver {
            Driver::Kernel => kernel,
            Driver::Dpdk => Self { tx_doorbell: 32, interrupt: 0, reads_pointers: false, ..kernel },
        }
    }

    /// The rate of packet bytes over the link, for packets of `packet` bytes
    /// as they cross PCIe (an Ethernet frame without its 4-byte FCS, usually).
    ///
    /// # Panics
    /// If `packet` is zero.
    pub fn goodput(&self, link: &Link, traffic: Traffic, packet: Bytes, omission: Omission) -> BitRate {
        self.wire(link, traffic, packet.get(), omission).goodput(link, packet.get())
    }

    /// Bytes of TLPs that a packet takes of the link, framing included: from the NIC and to it.
    ///
    /// # Panics
    /// If `packet` is zero.
    pub fn wire_bytes(&self, link: &Link, traffic: Traffic, packet: Bytes) -> (f64, f64) {
        let wire = self.wire(link, traffic, packet.get(), Omission::None);
        (wire.up, wire.down)
    }

    /// The same, part by part.
    ///
    /// # Panics
    /// If `packet` is zero.
    pub fn wire_parts(&self, link: &Link, traffic: Traffic, packet: Bytes) -> Vec<(Part, f64, f64)> {
        let parts = self.parts(link, traffic, packet.get(), Omission::None);
        parts.into_iter().map(|(part, wire)| (part, wire.up, wire.down)).collect()
    }

    fn wire(&self, link: &Link, traffic: Traffic, size: u64, omission: Omission) -> WireBytes {
        let parts = self.parts(link, traffic, size, omission).into_iter();
        parts.fold(WireBytes::default(), |sum, (_, part)| sum + part)
    }

    fn parts(&self, link: &Link, traffic: Traffic, size: u64, omission: Omission) -> Vec<(Part, WireBytes)> {
        assert!(size > 0, "a packet has bytes");
        let mut parts = Vec::new();
        if traffic != Traffic::Receive {
            parts.extend(self.transmit(link, size));
        }
        if traffic != Traffic::Transmit {
            parts.extend(self.receive(link, size, omission));
        }
        parts
    }

    /// Tail pointer, descriptors, packet, write-back, interrupt, head pointer.
    fn transmit(&self, link: &Link, size: u64) -> [(Part, WireBytes); 6] {
        let fetch = WireBytes::device_read(link, DESCRIPTOR * u64::from(self.tx_fetch)).every(self.tx_fetch);
        let write_back = match self.tx_write_back {
            0 => WireBytes::default(),
            n => WireBytes::device_write(link, DESCRIPTOR * u64::from(n)).every(n),
        };
        [
            (Part::Doorbells, WireBytes::host_write(link, POINTER).every(self.tx_doorbell)),
            (Part::Descriptors, fetch),
            (Part::Packets, WireBytes::device_read(link, size)),
            (Part::WriteBacks, write_back),
            (Part::Interrupts, self.interrupts(link)),
            (Part::Pointers, self.pointer_read(link, self.tx_doorbell)),
        ]
    }

    /// Free buffers' pointer, descriptor, packet, write-back, interrupt, head pointer.
    fn receive(&self, link: &Link, size: u64, omission: Omission) -> [(Part, WireBytes); 6] {
        let mut descriptor = WireBytes::device_read(link, DESCRIPTOR);
        if omission == Omission::RxDescriptorReads {
            descriptor.up -= link.request_overhead() as f64;
        }
        [
            (Part::Doorbells, WireBytes::host_write(link, POINTER).every(self.free_list)),
            (Part::Descriptors, descriptor),
            (Part::Packets, WireBytes::device_write(link, size)),
            (Part::WriteBacks, WireBytes::device_write(link, DESCRIPTOR)),
            (Part::Interrupts, self.interrupts(link)),
            (Part::Pointers, self.pointer_read(link, self.rx_pointer)),
        ]
    }

    fn interrupts(&self, link: &Link) -> WireBytes {
        match self.interrupt {
            0 => WireBytes::default(),
            n => WireBytes::device_write(link, MSI).every(n),
        }
    }

    fn pointer_read(&self, link: &Link, every: u32) -> WireBytes {
        if self.reads_pointers {
            WireBytes::host_read(link, POINTER).every(every)
        } else {
            WireBytes::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gbit(nic: Nic, traffic: Traffic, packet: u64, omission: Omission) -> f64 {
        nic.goodput(&Link::gen3_x8(), traffic, Bytes::new(packet), omission).as_gbit_per_s_f64()
    }

    /// The simple NIC's curve as published, oversight included.
    #[test]
    fn simple_nic_in_both_directions() {
        for (packet, value) in [(64, 13.2), (256, 31.4), (512, 39.4), (1024, 44.4)] {
            let got = gbit(Nic::simple(), Traffic::Both, packet, Omission::RxDescriptorReads);
            assert!((got - value).abs() < 0.06, "{packet}: {got}");
        }
    }

    /// 64 B frames whose FCS stays behind, every TLP counted.
    #[test]
    fn receive_alone_with_every_request() {
        let nics = [
            (Nic::simple(), 17.37),
            (Nic::modern(Driver::Kernel), 22.87),
            (Nic::modern(Driver::Dpdk), 23.47),
        ];
        for (nic, value) in nics {
            let got = gbit(nic, Traffic::Receive, 60, Omission::None);
            assert!((got - value).abs() < 0.006, "{nic:?}: {got}");
        }
    }

    /// Batching helps, the poll-mode driver more than the kernel's, and the
    /// oversight flatters every receiver.
    #[test]
    fn curves_are_ordered() {
        for packet in (60..1500).step_by(20) {
            for traffic in [Traffic::Transmit, Traffic::Receive, Traffic::Both] {
                let at = |nic| gbit(nic, traffic, packet, Omission::None);
                let (simple, kernel) = (at(Nic::simple()), at(Nic::modern(Driver::Kernel)));
                assert!(simple < kernel && kernel < at(Nic::modern(Driver::Dpdk)), "{traffic:?} {packet}");
            }
            let flattered = gbit(Nic::simple(), Traffic::Receive, packet, Omission::RxDescriptorReads);
            assert!(flattered > gbit(Nic::simple(), Traffic::Receive, packet, Omission::None));
        }
    }
}
