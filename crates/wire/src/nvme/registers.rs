//! Controller registers in BAR 0 (section 3.1).

/// Controller Capabilities, 64 bits.
pub const CAP: u64 = 0x00;
/// Version: see [`VERSION_1_4`].
pub const VS: u64 = 0x08;
/// Interrupt Mask Set.
pub const INTMS: u64 = 0x0c;
/// Interrupt Mask Clear.
pub const INTMC: u64 = 0x10;
/// Controller Configuration.
pub const CC: u64 = 0x14;
/// Controller Status.
pub const CSTS: u64 = 0x1c;
/// NVM Subsystem Reset.
pub const NSSR: u64 = 0x20;
/// Admin Queue Attributes.
pub const AQA: u64 = 0x24;
/// Admin Submission Queue Base Address, 64 bits.
pub const ASQ: u64 = 0x28;
/// Admin Completion Queue Base Address, 64 bits.
pub const ACQ: u64 = 0x30;
/// Controller Memory Buffer Location.
pub const CMBLOC: u64 = 0x38;
/// Controller Memory Buffer Size.
pub const CMBSZ: u64 = 0x3c;
/// Controller Memory Buffer Memory Space Control, 64 bits.
pub const CMBMSC: u64 = 0x50;
/// First of the doorbells.
pub const DOORBELLS: u64 = 0x1000;
/// What [`VS`] reads in a controller of version 1.4.
pub const VERSION_1_4: u32 = 0x0001_0400;
/// Value to write to NSSR: "NVMe".
pub const SUBSYSTEM_RESET: u32 = 0x4e56_4d65;

/// Offset of the tail doorbell of submission queue `queue`; `stride` is CAP.DSTRD.
pub const fn submission_doorbell(queue: u16, stride: u8) -> u64 {
    DOORBELLS + 2 * queue as u64 * (4 << stride)
}

/// Offset of the head doorbell of completion queue `queue`; `stride` is CAP.DSTRD.
pub const fn completion_doorbell(queue: u16, stride: u8) -> u64 {
    DOORBELLS + (2 * queue as u64 + 1) * (4 << stride)
}

const fn bits(value: u64, low: u32, count: u32) -> u64 {
    value >> low & ((1 << count) - 1)
}

const fn bit(value: u64, at: u32) -> bool {
    value >> at & 1 == 1
}

/// CAP: controller capabilities (section 3.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Maximum queue entries, minus one (MQES).
    pub max_queue_entries: u16,
    /// Queues must be physically contiguous (CQR).
    pub contiguous_queues: bool,
    /// Weighted round robin with urgent priority class is supported (AMS bit 0).
    pub weighted_round_robin: bool,
    /// Maximum time to enable or disable, in units of 500 ms (TO).
    pub timeout: u8,
    /// Doorbell stride: log2, in units of 4 bytes (DSTRD).
    pub doorbell_stride: u8,
    /// NVM Subsystem Reset is supported (NSSRS).
    pub subsystem_reset: bool,
    /// The NVM command set is supported (CSS bit 0).
    pub nvm_command_set: bool,
    /// Smallest page size: log2, in units of 4 KiB (MPSMIN).
    pub min_page_shift: u8,
    /// Largest page size: log2, in units of 4 KiB (MPSMAX).
    pub max_page_shift: u8,
    /// There is a controller memory buffer (CMBS).
    pub memory_buffer: bool,
}

impl Capabilities {
    /// From the register.
    pub const fn from_bits(value: u64) -> Self {
        Self {
            max_queue_entries: value as u16,
            contiguous_queues: bit(value, 16),
            weighted_round_robin: bit(value, 17),
            timeout: bits(value, 24, 8) as u8,
            doorbell_stride: bits(value, 32, 4) as u8,
            subsystem_reset: bit(value, 36),
            nvm_command_set: bit(value, 37),
            min_page_shift: bits(value, 48, 4) as u8,
            max_page_shift: bits(value, 52, 4) as u8,
            memory_buffer: bit(value, 57),
        }
    }

    /// The register.
    pub const fn to_bits(self) -> u64 {
        self.max_queue_entries as u64
            | (self.contiguous_queues as u64) << 16
            | (self.weighted_round_robin as u64) << 17
            | (self.timeout as u64) << 24
            | (self.doorbell_stride as u64 & 0xf) << 32
            | (self.subsystem_reset as u64) << 36
            | (self.nvm_command_set as u64) << 37
            | (self.min_page_shift as u64 & 0xf) << 48
            | (self.max_page_shift as u64 & 0xf) << 52
            | (self.memory_buffer as u64) << 57
    }
}

/// CC: controller configuration (section 3.1.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Configuration {
    /// Process commands (EN).
    pub enable: bool,
    /// Command set, 0 for NVM (CSS).
    pub command_set: u8,
    /// Page size: log2, in units of 4 KiB (MPS).
    pub page_shift: u8,
    /// Arbitration: 0 round robin, 1 weighted round robin with urgent priority class (AMS).
    pub arbitration: u8,
    /// Shutdown: 0 none, 1 normal, 2 abrupt (SHN).
    pub shutdown: u8,
    /// Log2 of the bytes of an I/O submission queue entry (IOSQES).
    pub submission_entry_shift: u8,
    /// Log2 of the bytes of an I/O completion queue entry (IOCQES).
    pub completion_entry_shift: u8,
}

impl Configuration {
    /// From the register.
    pub const fn from_bits(value: u32) -> Self {
        let value = value as u64;
        Self {
            enable: bit(value, 0),
            command_set: bits(value, 4, 3) as u8,
            page_shift: bits(value, 7, 4) as u8,
            arbitration: bits(value, 11, 3) as u8,
            shutdown: bits(value, 14, 2) as u8,
            submission_entry_shift: bits(value, 16, 4) as u8,
            completion_entry_shift: bits(value, 20, 4) as u8,
        }
    }

    /// The register.
    pub const fn to_bits(self) -> u32 {
        self.enable as u32
            | (self.command_set as u32 & 7) << 4
            | (self.page_shift as u32 & 0xf) << 7
            | (self.arbitration as u32 & 7) << 11
            | (self.shutdown as u32 & 3) << 14
            | (self.submission_entry_shift as u32 & 0xf) << 16
            | (self.completion_entry_shift as u32 & 0xf) << 20
    }

    /// Configuration with which a driver for the NVM command set enables a controller: 4 KiB pages, round robin.
    pub const fn enabled() -> Self {
        Self {
            enable: true,
            command_set: 0,
            page_shift: 0,
            arbitration: 0,
            shutdown: 0,
            submission_entry_shift: 6,
            completion_entry_shift: 4,
        }
    }
}

/// CSTS: controller status (section 3.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControllerStatus {
    /// Commands are processed (RDY).
    pub ready: bool,
    /// Fatal error, cleared only by a reset (CFS).
    pub fatal: bool,
    /// Shutdown: 0 none, 1 in progress, 2 complete (SHST).
    pub shutdown: u8,
    /// A subsystem reset has occurred (NSSRO).
    pub subsystem_reset: bool,
}

impl ControllerStatus {
    /// From the register.
    pub const fn from_bits(value: u32) -> Self {
        let value = value as u64;
        Self {
            ready: bit(value, 0),
            fatal: bit(value, 1),
            shutdown: bits(value, 2, 2) as u8,
            subsystem_reset: bit(value, 4),
        }
    }

    /// The register.
    pub const fn to_bits(self) -> u32 {
        self.ready as u32
            | (self.fatal as u32) << 1
            | (self.shutdown as u32 & 3) << 2
            | (self.subsystem_reset as u32) << 4
    }
}

/// AQA: sizes of the admin queues in entries, minus one (section 3.1.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdminQueues {
    /// Submission queue (ASQS), 12 bits.
    pub submission: u16,
    /// Completion queue (ACQS), 12 bits.
    pub completion: u16,
}

impl AdminQueues {
    /// From the register.
    pub const fn from_bits(value: u32) -> Self {
        Self { submission: value as u16 & 0xfff, completion: (value >> 16) as u16 & 0xfff }
    }

    /// The register.
    pub const fn to_bits(self) -> u32 {
        (self.submission as u32 & 0xfff) | (self.completion as u32 & 0xfff) << 16
    }
}

/// CMBLOC: location of the controller memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryBufferLocation {
    /// BAR that holds it (BIR): 0, or 2 to 5.
    pub bar: u8,
    /// Offset in the BAR in multiples of the size unit (OFST).
    pub offset: u32,
}

impl MemoryBufferLocation {
    /// From the register.
    pub const fn from_bits(value: u32) -> Self {
        Self { bar: value as u8 & 7, offset: value >> 12 }
    }

    /// The register.
    pub const fn to_bits(self) -> u32 {
        (self.bar as u32 & 7) | self.offset << 12
    }
}

/// CMBSZ: size and supported uses of the controller memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryBufferSize {
    /// Submission queues (SQS).
    pub submission_queues: bool,
    /// Completion queues (CQS).
    pub completion_queues: bool,
    /// PRP lists and SGL segments (LISTS).
    pub lists: bool,
    /// Data of commands that transfer to the host (RDS).
    pub read_data: bool,
    /// Data of commands that transfer from the host (WDS).
    pub write_data: bool,
    /// Size unit: 4 KiB times 16 to the power of this (SZU).
    pub unit: u8,
    /// Size in units (SZ).
    pub size: u32,
}

impl MemoryBufferSize {
    /// From the register.
    pub const fn from_bits(value: u32) -> Self {
        let wide = value as u64;
        Self {
            submission_queues: bit(wide, 0),
            completion_queues: bit(wide, 1),
            lists: bit(wide, 2),
            read_data: bit(wide, 3),
            write_data: bit(wide, 4),
            unit: bits(wide, 8, 4) as u8,
            size: value >> 12,
        }
    }

    /// The register.
    pub const fn to_bits(self) -> u32 {
        self.submission_queues as u32
            | (self.completion_queues as u32) << 1
            | (self.lists as u32) << 2
            | (self.read_data as u32) << 3
            | (self.write_data as u32) << 4
            | (self.unit as u32 & 0xf) << 8
            | self.size << 12
    }

    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        (self.size as u64) << (12 + 4 * (self.unit as u32 & 0xf))
    }
}

/// CMBMSC: address at which the controller decodes its memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryBufferControl {
    /// CMBLOC and CMBSZ are enabled (CRE).
    pub registers: bool,
    /// Addresses from the base on refer to the buffer (CMSE).
    pub memory_space: bool,
    /// Base address, a multiple of 4 KiB (CBA).
    pub base: u64,
}

impl MemoryBufferControl {
    /// From the register.
    pub const fn from_bits(value: u64) -> Self {
        Self { registers: bit(value, 0), memory_space: bit(value, 1), base: value & !0xfff }
    }

    /// The register.
    pub const fn to_bits(self) -> u64 {
        self.registers as u64 | (self.memory_space as u64) << 1 | self.base & !0xfff
    }
}
