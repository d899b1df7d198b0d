//! Registers of the NIC in BAR 0. Accesses have to be aligned and of 4 or 8 bytes.

/// Size of BAR 0 in bytes.
pub const BAR_BYTES: u64 = 0x4_0000;

/// What [`IDENTITY`] reads: "NFN1".
pub const IDENTITY_VALUE: u32 = 0x314e_464e;
/// Identifies the NIC (read only).
pub const IDENTITY: u64 = 0x00;
/// [`control`] bits.
pub const CONTROL: u64 = 0x04;
/// [`status`] bits (read only).
pub const STATUS: u64 = 0x08;
/// Speed of the Ethernet link in Mbit/s (read only).
pub const SPEED: u64 = 0x0c;
/// TX queues in bits 15 to 0, RX queues in bits 31 to 16 (read only).
pub const QUEUES: u64 = 0x10;
/// Interrupt vectors in bits 15 to 0, log2 of the largest ring in bits 23 to 16, maximum fragments per frame in bits 31
/// to 24 (read only).
pub const LIMITS: u64 = 0x14;
/// Flow rules in bits 15 to 0, entries of the RSS table in bits 31 to 16 (read only).
pub const TABLES: u64 = 0x18;
/// Supported [`feature`]s (read only).
pub const FEATURES: u64 = 0x1c;
/// Enabled [`feature`]s.
pub const ENABLED: u64 = 0x20;
/// Longest frame to receive, without check sequence.
pub const MAX_FRAME: u64 = 0x24;
/// The function's Ethernet address: 6 bytes as on the wire, then 2 zeros. A reset restores the permanent one; a virtual
/// function keeps the one that it was given.
pub const MAC: u64 = 0x28;
/// [`event`]s since the last read. While any is set and [`EVENT_VECTOR`] is valid, the legacy interrupt is asserted.
pub const EVENTS: u64 = 0x30;
/// Vector for events; [`NO_VECTOR`] for none. Without MSI-X, all vectors are the legacy interrupt.
pub const EVENT_VECTOR: u64 = 0x34;
/// Number of this function in bits 7 to 0, number of functions in bits 15 to 8, number of physical functions that share
/// this one's address at its port, itself included, in bits 23 to 16 (read only).
pub const FUNCTION: u64 = 0x38;
/// Maximum bytes of a packet to be segmented (TSO), headers included (read only).
pub const TSO_MAX: u64 = 0x3c;
/// Number of windows in [`WINDOW_BAR`] in bits 7 to 0, log2 of the lines of memory per window in bits 15 to 8, log2 of
/// the positions in a window in bits 23 to 16 (read only). The paper's format only uses as many positions as there are
/// lines. 0 if there are no windows.
pub const WINDOWS: u64 = 0x40;
/// Longest frame that stays in the device for the driver to fetch; 0 for none. RX queues with the number of a kPIO
/// queue have a receive window, which is read through that queue's window in [`WINDOW_BAR`]. The frame for the buffer
/// with index `count` is at `count` times [`HELD_BYTES`], modulo the window. Its slot is taken until the descriptor
/// that replaces the buffer in the ring has been posted; meanwhile, further frames for the slot go to memory.
pub const RX_HELD: u64 = 0x44;
/// Address rules per function, see [`address`] (read only).
pub const ADDRESSES: u64 = 0x48;
/// Bytes of a slot in a receive window.
pub const HELD_BYTES: u64 = 2048;
/// What the RSS hash covers: [`rss`] bits.
pub const RSS_TYPES: u64 = 0x80;
/// The RSS key, 40 bytes in the order of the specification's examples.
pub const RSS_KEY: u64 = 0x88;

/// Counters, 8 bytes each, in the order of [`counter`] (read only).
pub const COUNTERS: u64 = 0x100;

/// Flow rules: fields and command.
pub mod flow {
    /// Source address, as on the wire.
    pub const SOURCE: u64 = 0x200;
    /// Destination address, as on the wire.
    pub const DESTINATION: u64 = 0x204;
    /// Source port in bits 15 to 0, destination port in bits 31 to 16.
    pub const PORTS: u64 = 0x208;
    /// IP protocol.
    pub const PROTOCOL: u64 = 0x20c;
    /// Number of the rule, chosen by the driver.
    pub const RULE: u64 = 0x210;
    /// Target of matching frames: RX queue, or function; with [`GLOBAL_RULES`](super::feature::GLOBAL_RULES), the
    /// [number](super::queue::NUMBER) of a queue of any function.
    pub const TARGET: u64 = 0x214;
    /// Executes a command at once, with the values of the other registers.
    pub const COMMAND: u64 = 0x218;
    /// Result of the last command: one of the `RESULT_` numbers (read only).
    pub const RESULT: u64 = 0x21c;
    /// After [`QUERY`]: microseconds since a frame matched the rule, or since it was made (read only).
    pub const AGE_US: u64 = 0x220;
    /// After [`QUERY`]: frames that matched (read only).
    pub const HITS: u64 = 0x224;

    /// Adds a rule, replacing any with the same number or flow.
    pub const ADD: u32 = 1;
    /// Removes a rule.
    pub const REMOVE: u32 = 2;
    /// Queries a rule's age and hits.
    pub const QUERY: u32 = 3;
    /// Removes all rules.
    pub const CLEAR: u32 = 4;
    /// With any command: applies to the table of the internal switch, whose targets are functions. Each physical
    /// function has its own range of rules and numbers. A new rule replaces any other function's rule for the same
    /// flow.
    pub const SWITCH: u32 = 1 << 8;

    /// Done.
    pub const RESULT_OK: u32 = 0;
    /// The number or target is out of range.
    pub const RESULT_RANGE: u32 = 1;
    /// There is no such rule.
    pub const RESULT_NONE: u32 = 2;
    /// Not a command, or not for this function.
    pub const RESULT_UNKNOWN: u32 = 3;
}

/// Address rules: additional Ethernet addresses of a function, each with a queue of its own (82599: VMDq with a receive
/// address for each pool). They take precedence over flow rules and RSS.
pub mod address {
    /// The address: 6 bytes as on the wire, then 2 zeros.
    pub const MAC: u64 = 0x240;
    /// Number of the rule, chosen by the driver.
    pub const RULE: u64 = 0x248;
    /// Target RX queue of the frames.
    pub const TARGET: u64 = 0x24c;
    /// Executes a command at once, with the values of the other registers: [`ADD`](super::flow::ADD) or
    /// [`REMOVE`](super::flow::REMOVE).
    pub const COMMAND: u64 = 0x250;
    /// Result of the last command, as for a [flow rule](super::flow) (read only).
    pub const RESULT: u64 = 0x254;
}

/// The RSS table: an RX queue per 4-byte entry.
pub const RSS_TABLE: u64 = 0x1000;
/// Pending bits of MSI-X.
pub const MSIX_PENDING: u32 = 0x7000;
/// MSI-X table.
pub const MSIX_TABLE: u32 = 0x8000;
/// TX queues, [`QUEUE_STRIDE`] apart: see [`queue`].
pub const TX_QUEUES: u64 = 0x1_0000;
/// RX queues, [`QUEUE_STRIDE`] apart: see [`queue`].
pub const RX_QUEUES: u64 = 0x2_0000;
/// Distance of the queues' registers in bytes.
pub const QUEUE_STRIDE: u64 = 0x80;
/// Interrupt vectors' coalescing, [`VECTOR_STRIDE`] apart: see [`vector`].
pub const VECTORS: u64 = 0x3_0000;
/// Distance of the vectors' registers in bytes.
pub const VECTOR_STRIDE: u64 = 0x20;
/// kPIO queues, [`KPIO_STRIDE`] apart: see [`kpio`].
pub const KPIO_QUEUES: u64 = 0x3_8000;
/// Distance of the kPIO queues' registers in bytes.
pub const KPIO_STRIDE: u64 = 0x40;
/// The BAR with a window for each queue for programmed I/O, one after the other: written as [`crate::kpio`] says, read as
/// [`RX_HELD`] says.
pub const WINDOW_BAR: u8 = 2;
/// The BAR of inline doorbells: a page of [`INLINE_PAGE`] for each TX queue.
pub const INLINE_BAR: u8 = 4;
/// Bytes of a queue's inline doorbell page: two buffers used alternately, so that one can be written while the other is
/// in flight.
pub const INLINE_PAGE: u64 = 512;
/// Bytes of an inline doorbell: descriptor and data.
pub const INLINE_BYTES: u64 = INLINE_PAGE / 2;
/// Value of a vector register for none: no message is sent.
pub const NO_VECTOR: u32 = 0xffff;

/// Registers of a queue, relative to its first.
pub mod queue {
    /// The doorbell: total of descriptors posted, 16 bits.
    pub const TAIL: u64 = 0x00;
    /// Total of completed descriptors, 16 bits (read only). In modes that write completions, excludes those whose
    /// completion is not written yet.
    pub const HEAD: u64 = 0x04;
    /// Bus address of the ring, 8 bytes.
    pub const RING: u64 = 0x08;
    /// Log2 of the ring's entries.
    pub const SIZE: u64 = 0x10;
    /// Interrupt vector.
    pub const VECTOR: u64 = 0x14;
    /// Bus address of the completion ring (as many entries as the ring), or of the head word, 8 bytes.
    pub const COMPLETIONS: u64 = 0x18;
    /// Enable and modes, below. Writing [`ENABLE`] where it was clear starts the queue with empty rings.
    pub const CONTROL: u64 = 0x20;
    /// Completions per write; 0 for the device's default.
    pub const BATCH: u64 = 0x24;
    /// Nanoseconds that a completion waits for others; 0 for the device's default.
    pub const DELAY_NS: u64 = 0x28;
    /// Index of completions seen (RX: buffers, TX: descriptors) with [`ARM`]: requests an interrupt when there are
    /// more.
    pub const ARM_AT: u64 = 0x2c;
    /// State (read only), below.
    pub const STATUS: u64 = 0x30;
    /// Frames dropped for lack of descriptors (RX) or for invalid ones (TX) (read only).
    pub const DROPPED: u64 = 0x34;

    /// Log2 of the distance of completions in their ring: 4; 6 with
    /// [`WIDE_COMPLETIONS`](super::feature::WIDE_COMPLETIONS); up to 8 with [`INLINE`](super::feature::INLINE) (RX
    /// only); 0 counts as 4. The completion is at the end of the entry. With `INLINE`, frames that fit are written in
    /// front of it, and their buffer stays empty.
    pub const STRIDE: u64 = 0x38;
    /// With [`GLOBAL_RULES`](super::feature::GLOBAL_RULES) (RX of physical functions): the queue's number in the card's table
    /// from queues to functions, below the number of all of them. A reset of the function removes it.
    pub const NUMBER: u64 = 0x3c;

    /// Control: the queue runs.
    pub const ENABLE: u32 = 1 << 0;
    /// Control: completion mode, two bits. No writes: the driver reads [`HEAD`].
    pub const TO_REGISTER: u32 = 0;
    /// In place of the descriptors.
    pub const IN_PLACE: u32 = 1 << 4;
    /// Only the head index, 4 bytes (TX only).
    pub const TO_WORD: u32 = 2 << 4;
    /// To a separate ring.
    pub const TO_RING: u32 = 3 << 4;
    /// Mask of the two bits.
    pub const COMPLETION_MODE: u32 = 3 << 4;
    /// Control: interrupts need no arming.
    pub const ALWAYS_ARMED: u32 = 1 << 8;
    /// Arms the interrupt, in [`ARM_AT`].
    pub const ARM: u32 = 1 << 31;

    /// Status: runs.
    pub const RUNNING: u32 = 1 << 0;
    /// Status: stopped because of an invalid doorbell or ring, or a failed memory access.
    pub const ERROR: u32 = 1 << 1;
}

/// Registers of a vector, relative to its first.
pub mod vector {
    /// Nanoseconds from the first completion to the interrupt.
    pub const DELAY_NS: u64 = 0x00;
    /// Packets after which the interrupt is sent at once; 0 for no limit.
    pub const PACKETS: u64 = 0x04;
    /// Bit 0: the device adapts the delay to the load, up to [`DELAY_NS`].
    pub const ADAPTIVE: u64 = 0x08;
    /// With [`EVENT_QUEUES`](super::feature::EVENT_QUEUES): log2 of the entries of the vector's event queue. Writing it
    /// starts with an empty queue; 0 for none.
    pub const EVENTS_SIZE: u64 = 0x0c;
    /// Bus address of the event queue, 8 bytes: see [`event_entry`](crate::nic::event_entry).
    pub const EVENTS: u64 = 0x10;
    /// Total of entries that the driver has read, 16 bits. A full queue gets no entries; messages go on.
    pub const EVENTS_READ: u64 = 0x18;
}

/// Registers of a kPIO queue, relative to its first.
pub mod kpio {
    /// Enable and modes, below. Writing [`ENABLE`] where it was clear starts with position 0 and frame number 0.
    pub const CONTROL: u64 = 0x00;
    /// State (read only), below.
    pub const STATUS: u64 = 0x04;
    /// Total of freed lines, 32 bits (read only).
    pub const FREED: u64 = 0x08;
    /// Number of freed lines after which [`FREED`] is written to memory; 0 counts as 1.
    pub const REPORT_EVERY: u64 = 0x0c;
    /// Bus address of 4 bytes that receive [`FREED`], 8 bytes; 0 for none.
    pub const REPORT: u64 = 0x10;
    /// The end-of-packet signature, 8 bytes.
    pub const SIGNATURE: u64 = 0x18;
    /// Frames that were given up (read only).
    pub const DROPPED: u64 = 0x20;
    /// Frame numbers that were skipped (read only).
    pub const MISSING: u64 = 0x24;
    /// The next expected position, counted in lines, 32 bits: where a driver that has lost its position resumes.
    /// Writing any value gives up lines that wait for missing ones, so that the position stays.
    pub const NEXT: u64 = 0x28;
    /// Interrupt vector.
    pub const VECTOR: u64 = 0x2c;
    /// Total of lines, 32 bits: requests one interrupt when as many have been freed. The write implies that the driver
    /// has written that many lines; those that do not arrive for too long are given up.
    pub const ARM_AT: u64 = 0x30;

    /// Control: the queue runs.
    pub const ENABLE: u32 = 1 << 0;
    /// Control: frames have length and checksum; otherwise the paper's signature.
    pub const FRAMED: u32 = 1 << 4;
    /// Control, with [`FRAMED`]: the padding behind a frame is not written.
    pub const SHORT_LINES: u32 = 1 << 5;

    /// Control: writes without room wait in the port, and keep their credits, until there is room. The driver need not
    /// count lines.
    pub const HOLD: u32 = 1 << 6;

    /// Status: runs.
    pub const RUNNING: u32 = 1 << 0;
}

/// Bits of [`CONTROL`].
pub mod control {
    /// Enables receive. TX queues send as soon as they run.
    pub const ENABLE: u32 = 1 << 0;
    /// Resets the function with its queues, rules and counters, at once; reads as 0.
    pub const RESET: u32 = 1 << 1;
    /// Loopback, for self-tests: frames that the function sends go to its own receive side, whatever their address, and neither to the
    /// wire nor to other functions, of which it receives nothing either.
    pub const LOOPBACK: u32 = 1 << 2;
}

/// Bits of [`STATUS`].
pub mod status {
    /// Ready after a reset.
    pub const READY: u32 = 1 << 0;
    /// The Ethernet link is up.
    pub const LINK_UP: u32 = 1 << 1;
}

/// Log2 of the bytes of an entry with [`feature::WIDE_COMPLETIONS`]: the completion is preceded by zeros.
pub const WIDE_STRIDE: u8 = 6;

/// Bits of [`FEATURES`] and [`ENABLED`].
pub mod feature {
    /// Verifies checksums of received frames.
    pub const RX_CHECKSUM: u32 = 1 << 0;
    /// Fills in checksums of sent frames.
    pub const TX_CHECKSUM: u32 = 1 << 1;
    /// Segments TCP packets (TSO).
    pub const TSO: u32 = 1 << 2;
    /// Distributes received frames over queues.
    pub const RSS: u32 = 1 << 3;
    /// Steers flows to queues.
    pub const FLOW_RULES: u32 = 1 << 4;
    /// Receives frames for all addresses.
    pub const PROMISCUOUS: u32 = 1 << 5;
    /// Receives all multicast frames; broadcast frames are always received.
    pub const ALL_GROUPS: u32 = 1 << 6;
    /// Transmits by programmed I/O.
    pub const KPIO: u32 = 1 << 7;
    /// Supports data in descriptors, descriptors in doorbells, and data with completions.
    pub const INLINE: u32 = 1 << 8;
    /// Several functions share this one's address: rules of the internal switch assign flows to functions.
    pub const STATION: u32 = 1 << 9;
    /// Completions in a separate ring take a whole line each, [`WIDE_STRIDE`](super::WIDE_STRIDE).
    pub const WIDE_COMPLETIONS: u32 = 1 << 10;
    /// One table of flow rules for all physical functions: a rule names one of the card's RX queues by its
    /// [number](super::queue::NUMBER), and the card looks up which function's it is (IOctopus, 4.1). There are no rules of
    /// the internal switch.
    pub const GLOBAL_RULES: u32 = 1 << 11;
    /// Vectors can have event queues.
    pub const EVENT_QUEUES: u32 = 1 << 12;
}

/// Bits of [`EVENTS`].
pub mod event {
    /// The Ethernet link went up or down.
    pub const LINK: u32 = 1 << 0;
    /// A queue stopped with an error.
    pub const QUEUE_ERROR: u32 = 1 << 1;
    /// Queues have completions to report, but no messages to do so.
    pub const QUEUES: u32 = 1 << 2;
}

/// Bits of [`RSS_TYPES`].
pub mod rss {
    /// Source and destination address of IP packets.
    pub const ADDRESSES: u32 = 1 << 0;
    /// Addresses and ports of TCP.
    pub const TCP: u32 = 1 << 1;
    /// Addresses and ports of UDP.
    pub const UDP: u32 = 1 << 2;
}

/// Places in [`COUNTERS`]. Frames and bytes are counted without check sequence.
pub mod counter {
    /// Frames sent.
    pub const TX_FRAMES: usize = 0;
    /// Bytes sent.
    pub const TX_BYTES: usize = 1;
    /// Frames not sent: bad descriptors, failed reads.
    pub const TX_ERRORS: usize = 2;
    /// Frames lost because the Ethernet link was down.
    pub const TX_NO_CARRIER: usize = 3;
    /// Frames received into memory.
    pub const RX_FRAMES: usize = 4;
    /// Bytes received into memory.
    pub const RX_BYTES: usize = 5;
    /// Frames not addressed to any function.
    pub const RX_FILTERED: usize = 6;
    /// Frames with a wrong check sequence.
    pub const RX_FCS_ERRORS: usize = 7;
    /// Frames that were too short or too long.
    pub const RX_LENGTH_ERRORS: usize = 8;
    /// Frames dropped because the queue had no buffer.
    pub const RX_NO_BUFFER: usize = 9;
    /// Frames dropped because the device's own memory was full.
    pub const RX_OVERFLOW: usize = 10;
    /// Frames for queues that do not run.
    pub const RX_NO_QUEUE: usize = 11;
    /// Segments cut from larger ones.
    pub const TX_SEGMENTS: usize = 12;
    /// Interrupts raised.
    pub const INTERRUPTS: usize = 13;
    /// Descriptor reads.
    pub const FETCHES: usize = 14;
    /// Completion writes.
    pub const WRITE_BACKS: usize = 15;
    /// Frames sent by kPIO.
    pub const KPIO_FRAMES: usize = 16;
    /// Complete lines written to kPIO queues.
    pub const KPIO_LINES: usize = 17;
    /// Writes to kPIO queues of less than a whole line.
    pub const KPIO_PIECES: usize = 18;
    /// Writes to a line while an earlier one was incomplete.
    pub const KPIO_AHEAD: usize = 19;
    /// Frames that were given up after their first line arrived by kPIO.
    pub const KPIO_DROPPED: usize = 20;
    /// Frame numbers that were skipped: frames given up, and frames that never began.
    pub const KPIO_MISSING: usize = 21;
    /// Writes to kPIO positions that had no room or had passed.
    pub const KPIO_OUTSIDE: usize = 22;
    /// Writes to bytes of kPIO queues that had already been written.
    pub const KPIO_TWICE: usize = 23;
    /// How often a missing line was given up.
    pub const KPIO_WAITS: usize = 24;
    /// Packets taken from inline doorbells, without a descriptor read.
    pub const INLINE_PACKETS: usize = 25;
    /// Frames of virtual functions that were not sent because of a foreign source address.
    pub const TX_SPOOFED: usize = 26;
    /// Descriptors read, for TX and RX.
    pub const FETCHED: usize = 27;
    /// Bytes of completion writes, without frames written with them.
    pub const WRITTEN_BACK: usize = 28;
    /// Received frames that stayed in the device for the driver to fetch.
    pub const RX_HELD: usize = 29;
    /// PAUSE frames received (IEEE 802.3, annex 31B).
    pub const RX_PAUSES: usize = 30;
    /// PAUSE frames sent, including those that end a pause.
    pub const TX_PAUSES: usize = 31;
    /// Number of counters.
    pub const COUNT: usize = 32;
    /// Names of the counters by place, for reports.
    pub const NAMES: [&str; COUNT] = [
        "tx-frames",
        "tx-bytes",
        "tx-errors",
        "tx-no-carrier",
        "rx-frames",
        "rx-bytes",
        "rx-filtered",
        "rx-fcs-errors",
        "rx-length-errors",
        "rx-no-buffer",
        "rx-overflow",
        "rx-no-queue",
        "tx-segments",
        "interrupts",
        "fetches",
        "write-backs",
        "kpio-frames",
        "kpio-lines",
        "kpio-pieces",
        "kpio-ahead",
        "kpio-dropped",
        "kpio-missing",
        "kpio-outside",
        "kpio-twice",
        "kpio-waits",
        "inline-packets",
        "tx-spoofed",
        "fetched",
        "written-back",
        "rx-held",
        "rx-pauses",
        "tx-pauses",
    ];
}
