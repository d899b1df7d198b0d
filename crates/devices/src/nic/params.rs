//! What a NIC is made of.

use platform::device::PortIndex;
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration};
use wire::ethernet::MacAddr;
use wire::nic::registers::feature;
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

/// When a NIC asks for a pause, and when it takes that back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowControl {
    /// Received bytes in the device from which on the other end is asked to stop.
    pub stop: u32,
    /// Bytes at which it may go on.
    pub go_on: u32,
}

/// A NIC.
#[derive(Clone, Debug)]
pub struct NicParams {
    /// Its functions, number 0 first.
    pub functions: Vec<NicFunctionParams>,
    /// Virtual functions of each of them.
    pub virtual_functions: Option<VirtualParams>,
    /// Ethernet ports.
    pub ports: u8,
    /// Speed of each.
    pub rate: BitRate,
    /// TX queues of each function, at most 256.
    pub tx_queues: u16,
    /// RX queues of each function, at most 256.
    pub rx_queues: u16,
    /// Interrupt vectors of each function.
    pub vectors: u16,
    /// Physical functions have messages (MSI-X) for their vectors; else all vectors are the legacy interrupt.
    pub messages: bool,
    /// Log2 of the entries of the largest ring, at most 15.
    pub log2_ring: u8,
    /// Longest frame in bytes, without check sequence.
    pub max_frame: u16,
    /// Most fragments of a frame.
    pub max_fragments: u8,
    /// Most bytes of a frame that is cut (TSO).
    pub tso_max: u32,
    /// What it can do: bits of [`feature`].
    pub features: u32,
    /// Entries of the RSS table, a power of two, at most 1024.
    pub rss_entries: u16,
    /// Rules that steer flows to queues, for each function.
    pub flow_rules: u16,
    /// Further Ethernet addresses of each function, each with a queue of its own; 0 for none.
    pub addresses: u16,
    /// Rules of the internal switch that steer flows to functions, for each physical function. All together number at most 65535.
    pub switch_rules: u16,
    /// Flow control at the Ethernet ports, if it is on.
    pub flow_control: Option<FlowControl>,
    /// Sending.
    pub tx: PathParams,
    /// Receiving.
    pub rx: PathParams,
    /// Largest single DMA read of a frame's data in bytes. Cutting begins with the first one's arrival.
    pub read_chunk: u32,
    /// Largest single DMA write of a frame's data in bytes.
    pub write_chunk: u32,
    /// From the data of a DMA read being there until the device uses it.
    pub read_use: Duration,
    /// From a doorbell's arrival until the queue is looked at.
    pub doorbell_latency: Duration,
    /// How long a register read takes the device.
    pub register_latency: Duration,
    /// Queues that take frames by programmed I/O.
    pub kpio: Option<KpioParams>,
    /// Frames go round inside, from port 0 to port 1 and back, instead of to the wire: from a frame's last byte until
    /// the other port has it.
    pub loopback: Option<Duration>,
    /// What goes round inside arrives in the other of two subnets, see `subnets`.
    pub loop_subnets: bool,
    /// PCI vendor and device number.
    pub ids: (u16, u16),
    /// Capabilities that each function announces.
    pub pcie: PcieParams,
}

/// A function of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct NicFunctionParams {
    /// The PCIe port below which it is found.
    pub pcie_port: PortIndex,
    /// The Ethernet port that it sends through.
    pub port: EthernetPort,
    /// Its address. Functions may share one: then rules of the internal switch tell them apart.
    pub mac: MacAddr,
}

/// Virtual functions (SR-IOV). They send through their physical function's Ethernet port, by rings alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualParams {
    /// Most for each physical function.
    pub count: u8,
    /// TX queues, and as many RX queues, of each.
    pub queues: u16,
    /// Interrupt vectors of each.
    pub vectors: u16,
    /// Their PCI device number.
    pub device: u16,
}

/// One of the two directions.
#[derive(Clone, Copy, Debug)]
pub struct PathParams {
    /// Descriptors that one read fetches.
    pub fetch: u16,
    /// Descriptors that a queue keeps in the device, a power of two.
    pub cache: u16,
    /// Completions that are written at once.
    pub write_back: u16,
    /// How long a completion waits for others.
    pub write_back_delay: Duration,
    /// Least time from one packet to the next.
    pub packet_time: Duration,
    /// Bytes of packets that the device has room for.
    pub memory: u32,
    /// TX: from a packet's data being there to its first bit. RX: from its last bit to its first DMA write.
    pub latency: Duration,
}

/// Queues that take frames by programmed I/O (kPIO+WC, Figure 2: queue, EOP filter).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioParams {
    /// Queues of each function, at most 64.
    pub queues: u16,
    /// Log2 of the lines that each queue has memory for.
    pub log2_lines: u8,
    /// Log2 of the positions in its window for the second format, at least as much; with as much, lines that come too late are
    /// not known. The paper's format has as much.
    pub log2_positions: u8,
    /// From a line's arrival until the frame that it ends can leave.
    pub latency: Duration,
    /// How long a line is waited for that others have passed.
    pub patience: Duration,
    /// How long freed lines wait for others before the driver is told.
    pub report_delay: Duration,
}

impl KpioParams {
    /// The paper's 4 KB (section III.A) in a window of eight times as many positions, one queue for each of 16 cores.
    /// Patience and delay are assumed: well above what a line stays in a core, or a link takes to retrain; the 82599's
    /// delay of write-backs. The latency is assumed: a few cycles of 250 MHz.
    pub const fn example() -> Self {
        Self {
            queues: 16,
            log2_lines: 6,
            log2_positions: 9,
            latency: Duration::from_ns(20),
            patience: Duration::from_us(20),
            report_delay: Duration::from_us(2),
        }
    }

    /// Bytes of a queue's window.
    pub const fn window(&self) -> u64 {
        128 << self.log2_positions
    }
}

const ALL_FEATURES: u32 = feature::RX_CHECKSUM
    | feature::TX_CHECKSUM
    | feature::TSO
    | feature::RSS
    | feature::FLOW_RULES
    | feature::PROMISCUOUS
    | feature::ALL_GROUPS;

impl NicParams {
    /// A NIC of 40 Gbit/s on Gen3 x8 that works in batches, with pcie-bench's figures for a modern NIC (section 3: Intel
    /// 82599 with ixgbe's defaults): 40 descriptors fetched and 8 written back at once for sending, one each for receiving.
    /// Memory as the 82599's (512 KiB for receiving, 160 KiB for sending; datasheet, section 1.2).
    pub fn modern(mac: MacAddr) -> Self {
        let tx = PathParams {
            fetch: 40,
            cache: 128,
            write_back: 8,
            write_back_delay: Duration::from_us(2),
            packet_time: Duration::ZERO,
            memory: 160 << 10,
            latency: Duration::from_ns(200),
        };
        let rx = PathParams {
            fetch: 1,
            write_back: 1,
            write_back_delay: Duration::ZERO,
            memory: 512 << 10,
            latency: Duration::from_ns(200),
            ..tx
        };
        Self {
            functions: vec![NicFunctionParams { pcie_port: PortIndex(0), port: EthernetPort(0), mac }],
            virtual_functions: None,
            ports: 1,
            rate: BitRate::gbit_per_s(40),
            tx_queues: 64,
            rx_queues: 64,
            vectors: 64,
            messages: true,
            log2_ring: 12,
            max_frame: 9018,
            max_fragments: 40,
            tso_max: 256 << 10,
            features: ALL_FEATURES,
            rss_entries: 128,
            flow_rules: 8192,
            addresses: 128,
            switch_rules: 8192,
            flow_control: None,
            tx,
            rx,
            read_chunk: 4096,
            write_chunk: u32::MAX,
            read_use: Duration::ZERO,
            doorbell_latency: Duration::ZERO,
            register_latency: Duration::from_ns(100),
            kpio: None,
            loopback: None,
            loop_subnets: false,
            ids: (wire::nic::VENDOR, wire::nic::DEVICE),
            pcie: PcieParams::endpoint(Generation::Gen3, Width::X8),
        }
    }

    /// pcie-bench's simple NIC (section 3): everything for every packet.
    pub fn simple(mac: MacAddr) -> Self {
        let mut nic = Self::modern(mac);
        nic.tx = PathParams { fetch: 1, write_back: 1, write_back_delay: Duration::ZERO, ..nic.tx };
        nic
    }
}
