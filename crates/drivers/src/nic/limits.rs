//! What a NIC function reports about itself.

use platform::Error;
use platform::cpu::Cpu;
use platform::mmio::Mmio;
use platform::net::MacAddr;
use wire::LINE;
use wire::nic::registers::{self as regs, feature};

/// Windows of the device's queues for programmed I/O, one after the other in a BAR of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub count: u16,
    /// Log2 of the lines that a queue can hold.
    pub log2_lines: u8,
    /// Log2 of the positions in a queue's window.
    pub log2_positions: u8,
}

impl Windows {
    /// Decodes the register; `None` if there are no windows or the value is invalid.
    fn of(register: u32) -> Option<Self> {
        let [count, log2_lines, log2_positions, _] = register.to_le_bytes();
        let is_sane = count > 0 && (1..=log2_positions).contains(&log2_lines) && log2_positions <= 16;
        is_sane.then_some(Self { count: count.into(), log2_lines, log2_positions })
    }

    /// Length of a window in bytes: each position is there twice.
    pub fn length(self) -> u64 {
        2 * LINE as u64 * (1 << self.log2_positions)
    }
}

/// Capabilities read from the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub mac: MacAddr,
    pub queues: u16,
    pub vectors: u16,
    pub log2_ring: u8,
    pub max_fragments: u16,
    pub rules: u16,
    pub addresses: u16,
    pub rss_entries: u16,
    pub features: u32,
    pub max_frame: u16,
    pub tso_max: u32,
    pub mbit: u32,
    pub windows: Option<Windows>,
    /// Number of this function within the device.
    pub function: u8,
    /// Functions that share its address, itself included.
    pub sharing: u8,
}

impl Limits {
    /// Whether it has to program flow rules into the card's internal switch, as one of several functions with the
    /// same address.
    pub fn tells_switch(&self) -> bool {
        self.features & (feature::STATION | feature::GLOBAL_RULES) == feature::STATION
    }

    /// Number of the function's first RX queue among those of the card, by which flow rules name it.
    pub fn first_queue(&self) -> u16 {
        // A device that is gone reads as all ones.
        let first = u16::from(self.function).saturating_mul(self.queues);
        if self.features & feature::GLOBAL_RULES == 0 { 0 } else { first }
    }

    /// Reads the device's capabilities.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it does not answer or is some other device.
    pub async fn read(cpu: &Cpu, registers: &Mmio) -> Result<Self, Error> {
        if registers.read_u32(cpu, regs::IDENTITY).await != regs::IDENTITY_VALUE {
            return Err(Error::NoDevice);
        }
        let queues = registers.read_u32(cpu, regs::QUEUES).await;
        let limits = registers.read_u32(cpu, regs::LIMITS).await;
        let tables = registers.read_u32(cpu, regs::TABLES).await;
        let mac = registers.read_u64(cpu, regs::MAC).await.to_le_bytes();
        let function = registers.read_u32(cpu, regs::FUNCTION).await;
        let found = Self {
            mac: MacAddr([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]),
            queues: (queues as u16).min((queues >> 16) as u16),
            vectors: limits as u16,
            log2_ring: (limits >> 16) as u8,
            max_fragments: (limits >> 24) as u16,
            rules: tables as u16,
            addresses: registers.read_u32(cpu, regs::ADDRESSES).await as u16,
            rss_entries: (tables >> 16) as u16,
            features: registers.read_u32(cpu, regs::FEATURES).await,
            max_frame: registers.read_u32(cpu, regs::MAX_FRAME).await as u16,
            tso_max: registers.read_u32(cpu, regs::TSO_MAX).await,
            mbit: registers.read_u32(cpu, regs::SPEED).await,
            windows: Windows::of(registers.read_u32(cpu, regs::WINDOWS).await),
            function: function as u8,
            sharing: (function >> 16) as u8,
        };
        let is_sane = found.queues > 0 && found.vectors > 1 && found.max_fragments > 0 && found.mbit > 0;
        if is_sane { Ok(found) } else { Err(Error::Io) }
    }
}
