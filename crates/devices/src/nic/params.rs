//! Parameters of a NIC.

use platform::device::PortIndex;
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration};
use wire::LINE;
use wire::ethernet::MacAddr;
use wire::nic::registers::feature;
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

use super::around::LoopbackParams;
use super::kpio::KpioParams;

/// Thresholds at which a NIC requests a pause and ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowControl {
    /// Received bytes in the device at which the link partner is asked to pause.
    pub stop: u32,
    /// Bytes at or below which it may continue.
    pub go_on: u32,
}

/// Parameters of a NIC.
#[derive(Clone, Debug)]
pub struct NicParams {
    /// Physical functions, number 0 first.
    pub functions: Vec<NicFunctionParams>,
    /// Virtual functions of each physical function.
    pub virtual_functions: Option<VirtualParams>,
    /// Number of Ethernet ports.
    pub ports: u8,
    /// Speed of each port.
    pub rate: BitRate,
    /// TX queues per function, at most 256.
    pub tx_queues: u16,
    /// RX queues per function, at most 256.
    pub rx_queues: u16,
    /// Interrupt vectors per function.
    pub vectors: u16,
    /// Physical functions have MSI-X messages for their vectors; otherwise all vectors share the legacy interrupt.
    pub messages: bool,
    /// Log2 of the entries of the largest ring, at most 15.
    pub log2_ring: u8,
    /// Longest frame in bytes, without check sequence.
    pub max_frame: u16,
    /// Maximum number of fragments of a frame.
    pub max_fragments: u8,
    /// Maximum bytes of a packet to be segmented (TSO).
    pub tso_max: u32,
    /// Supported features: bits of [`feature`].
    pub features: u32,
    /// Entries of the RSS table, a power of two, at most 1024.
    pub rss_entries: u16,
    /// Rules per function that steer flows to queues.
    pub flow_rules: u16,
    /// Additional Ethernet addresses per function, each with a queue of its own; 0 for none.
    pub addresses: u16,
    /// Rules of the internal switch, per physical function, that steer flows to functions. At most 65535 in total.
    pub switch_rules: u16,
    /// Flow control at the Ethernet ports, if enabled.
    pub flow_control: Option<FlowControl>,
    /// Transmit path.
    pub tx: PathParams,
    /// Receive path.
    pub rx: PathParams,
    /// Largest single DMA read of frame data in bytes. Segmentation begins when the first one arrives.
    pub read_chunk: u32,
    /// Largest single DMA write of frame data in bytes.
    pub write_chunk: u32,
    /// From the arrival of DMA read data to its use by the device.
    pub read_use: Duration,
    /// From a doorbell's arrival to the device looking at the queue.
    pub doorbell_latency: Duration,
    /// Latency of a register read in the device.
    pub register_latency: Duration,
    /// Queues for transmit by programmed I/O.
    pub kpio: Option<KpioParams>,
    /// The loopback that replaces the wire.
    pub loopback: Option<LoopbackParams>,
    /// PCI vendor and device ID.
    pub ids: (u16, u16),
    /// PCIe capabilities of each function.
    pub pcie: PcieParams,
}

/// Parameters of a physical function.
#[derive(Clone, Copy, Debug)]
pub struct NicFunctionParams {
    /// The PCIe port that the function belongs to.
    pub pcie_port: PortIndex,
    /// The Ethernet port that it uses.
    pub port: EthernetPort,
    /// MAC address. If functions share one, rules of the internal switch select among them.
    pub mac: MacAddr,
}

impl NicFunctionParams {
    /// Whether both have the same address at the same port.
    pub(super) fn is_same_station(&self, other: &Self) -> bool {
        self.port == other.port && self.mac == other.mac
    }
}

/// Virtual functions (SR-IOV). They use their physical function's Ethernet port, and transmit through rings only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualParams {
    /// Maximum per physical function.
    pub count: u8,
    /// TX queues, and as many RX queues, per virtual function.
    pub queues: u16,
    /// Interrupt vectors per virtual function.
    pub vectors: u16,
    /// PCI device ID of virtual functions.
    pub device: u16,
}

/// Parameters of one direction.
#[derive(Clone, Copy, Debug)]
pub struct PathParams {
    /// Descriptors per DMA read.
    pub fetch: u16,
    /// Descriptors cached in the device per queue, a power of two.
    pub cache: u16,
    /// Completions per DMA write.
    pub write_back: u16,
    /// How long a completion waits for others to be written with it.
    pub write_back_delay: Duration,
    /// Minimum time from one packet to the next.
    pub packet_time: Duration,
    /// Packet memory in bytes.
    pub memory: u32,
    /// TX: from the arrival of a packet's data to its first bit. RX: from a packet's last bit to its first DMA write.
    pub latency: Duration,
}

/// The window of a queue.
#[derive(Clone, Copy)]
pub(super) struct QueueWindow {
    pub function: u8,
    pub queue: u8,
}

/// The windows of a physical function's queues in [`WINDOW_BAR`](wire::nic::registers::WINDOW_BAR), one after the other.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    count: u16,
    /// Size of a window in bytes.
    bytes: u64,
}

impl Windows {
    /// Size of the BAR in bytes; `None` if there are no windows.
    pub fn bar(&self) -> Option<u64> {
        (self.count > 0).then(|| (u64::from(self.count) * self.bytes).next_power_of_two())
    }

    /// Size of a queue's window in bytes; `None` if it has none.
    pub fn of(&self, queue: u8) -> Option<u64> {
        (u16::from(queue) < self.count).then_some(self.bytes)
    }

    /// Splits an offset in the BAR into a queue and the offset in its window. There may be no such queue.
    pub fn split(&self, at: u64) -> (usize, u64) {
        ((at / self.bytes) as usize, at % self.bytes)
    }
}

const ALL_FEATURES: u32 = feature::RX_CHECKSUM
    | feature::TX_CHECKSUM
    | feature::TSO
    | feature::RSS
    | feature::FLOW_RULES
    | feature::PROMISCUOUS
    | feature::ALL_GROUPS;

/// Features that virtual functions do not have: those that need a further BAR, and promiscuous mode.
pub(super) const PHYSICAL_ONLY: u32 = feature::KPIO | feature::INLINE | feature::PROMISCUOUS;

impl NicParams {
    /// The windows of a function's queues.
    pub(super) fn windows(&self) -> Windows {
        let (count, positions) = self.kpio.map_or((0, 0), |kpio| (kpio.queues, kpio.log2_positions));
        // Each position is there twice, see `wire::kpio`.
        Windows { count, bytes: (2 * LINE as u64) << positions }
    }

    /// The supported features, with those that follow from other parameters.
    pub(super) fn all_features(&self) -> u32 {
        let mut features = self.features;
        if self.kpio.is_some() {
            features |= feature::KPIO;
        }
        let shares = |one: &NicFunctionParams, other: &NicFunctionParams| {
            one.is_same_station(other) && one.pcie_port != other.pcie_port
        };
        let functions_share = |one| self.functions.iter().any(|other| shares(one, other));
        if self.flow_rules > 0 && self.functions.iter().any(functions_share) {
            features |= feature::STATION;
        }
        features
    }

    /// A batching 40 Gbit/s NIC on Gen3 x8, with pcie-bench's figures for a modern NIC (section 3: Intel 82599 with
    /// ixgbe's defaults): TX descriptors are fetched 40 at a time and written back 8 at a time, RX descriptors one at a
    /// time. Packet memory as in the 82599 (512 KiB for RX, 160 KiB for TX; datasheet, section 1.2).
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
            ids: (wire::nic::VENDOR, wire::nic::DEVICE),
            pcie: PcieParams::endpoint(Generation::Gen3, Width::X8),
        }
    }

    /// pcie-bench's simple NIC (section 3), which does everything per packet.
    pub fn simple(mac: MacAddr) -> Self {
        let mut nic = Self::modern(mac);
        nic.tx = PathParams { fetch: 1, write_back: 1, write_back_delay: Duration::ZERO, ..nic.tx };
        nic
    }
}
