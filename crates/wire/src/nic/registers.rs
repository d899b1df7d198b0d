//! Registers of the NIC in BAR 0. They are read and written in whole 4 or 8 bytes, aligned.

/// Bytes of BAR 0.
pub const BAR_BYTES: u64 = 0x4_0000;

/// What [`IDENTITY`] reads: "NFN1".
pub const IDENTITY_VALUE: u32 = 0x314e_464e;
/// Says that this is the NIC (read only).
pub const IDENTITY: u64 = 0x00;
/// [`control`] bits.
pub const CONTROL: u64 = 0x04;
/// [`status`] bits (read only).
pub const STATUS: u64 = 0x08;
/// Speed of the Ethernet link in Mbit/s (read only).
pub const SPEED: u64 = 0x0c;
/// TX queues in bits 15 to 0, RX queues in bits 31 to 16 (read only).
pub const QUEUES: u64 = 0x10;
/// Interrupt vectors in bits 15 to 0, log2 of the largest ring in bits 23 to 16, most fragments of a frame in bits 31 to
/// 24 (read only).
pub const LIMITS: u64 = 0x14;
/// Flow rules in bits 15 to 0, entries of the RSS table in bits 31 to 16 (read only).
pub const TABLES: u64 = 0x18;
/// [`feature`]s that there are (read only).
pub const FEATURES: u64 = 0x1c;
/// [`feature`]s that are on.
pub const ENABLED: u64 = 0x20;
/// Longest frame that is received, without check sequence.
pub const MAX_FRAME: u64 = 0x24;
/// The function's Ethernet address: 6 bytes as on the wire, then 2 zeros. The permanent one after a reset. A virtual
/// function keeps the one that it was given.
pub const MAC: u64 = 0x28;
/// [`event`]s since it was read last. The legacy interrupt is due as long as there are some and [`EVENT_VECTOR`] is given.
pub const EVENTS: u64 = 0x30;
/// The vector that tells of events; [`NO_VECTOR`] for none. Without messages (MSI-X) all vectors are the legacy interrupt.
pub const EVENT_VECTOR: u64 = 0x34;
/// This function in bits 7 to 0, functions in bits 15 to 8 (read only).
pub const FUNCTION: u64 = 0x38;
/// Most bytes of a frame that is cut (TSO), headers included (read only).
pub const TSO_MAX: u64 = 0x3c;
/// kPIO queues in bits 7 to 0, log2 of the lines that each has memory for in bits 15 to 8, log2 of the positions in
/// its window in bits 23 to 16 (read only). The paper's format uses the first of them, as many as there are lines. All 0 if there
/// are none.
pub const KPIO: u64 = 0x40;
/// Longest frame that stays in the device for the driver to fetch: RX queues with the number of a kPIO queue have a
/// receive window, what its window in [`KPIO_BAR`] reads; 0 for none. The frame for the buffer with a count is at
/// that count times [`HELD_BYTES`], round the window, until the descriptor that takes the buffer's place in the ring has been
/// given. While a place is taken, frames for it go into memory.
pub const RX_HELD: u64 = 0x44;
/// Address rules of each function, see [`address`] (read only).
pub const ADDRESSES: u64 = 0x48;
/// Bytes of a frame's place in a receive window.
pub const HELD_BYTES: u64 = 2048;
/// What the RSS hash covers: [`rss`] bits.
pub const RSS_TYPES: u64 = 0x80;
/// The RSS key, 40 bytes as the specification's examples print it.
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
    /// RX queue, or function, where matching frames go.
    pub const TARGET: u64 = 0x214;
    /// Acts with what the other registers hold, at once.
    pub const COMMAND: u64 = 0x218;
    /// Outcome of the last command: one of the `RESULT_` numbers (read only).
    pub const RESULT: u64 = 0x21c;
    /// After [`QUERY`]: microseconds since a frame matched the rule, or since it was made (read only).
    pub const AGE_US: u64 = 0x220;
    /// After [`QUERY`]: frames that matched (read only).
    pub const HITS: u64 = 0x224;

    /// Makes a rule, in place of what had its number or its flow.
    pub const ADD: u32 = 1;
    /// Removes a rule.
    pub const REMOVE: u32 = 2;
    /// Asks for its age and use.
    pub const QUERY: u32 = 3;
    /// Removes all rules.
    pub const CLEAR: u32 = 4;
    /// With any command: the table of the internal switch, whose targets are functions. Each physical function has a part of it
    /// with numbers of its own; a rule replaces any other's for its flow.
    pub const SWITCH: u32 = 1 << 8;

    /// Done.
    pub const RESULT_OK: u32 = 0;
    /// There is no such number or target: the table is bounded.
    pub const RESULT_RANGE: u32 = 1;
    /// There is no such rule.
    pub const RESULT_NONE: u32 = 2;
    /// Not a command, or not for this function.
    pub const RESULT_UNKNOWN: u32 = 3;
}

/// Address rules: further Ethernet addresses that a function takes frames for, each with a queue of its own (82599: VMDq with a
/// receive address for each pool). They go before flow rules and the receive hash.
pub mod address {
    /// The address: 6 bytes as on the wire, then 2 zeros.
    pub const MAC: u64 = 0x240;
    /// Number of the rule, chosen by the driver.
    pub const RULE: u64 = 0x248;
    /// RX queue where its frames go.
    pub const TARGET: u64 = 0x24c;
    /// Acts with what the other registers hold, at once: [`ADD`](super::flow::ADD) or [`REMOVE`](super::flow::REMOVE).
    pub const COMMAND: u64 = 0x250;
    /// Outcome of the last command, as of a [flow rule](super::flow)'s (read only).
    pub const RESULT: u64 = 0x254;
}

/// The RSS table: 4 bytes an entry, the RX queue.
pub const RSS_TABLE: u64 = 0x1000;
/// Pending bits of MSI-X.
pub const MSIX_PENDING: u32 = 0x7000;
/// MSI-X table.
pub const MSIX_TABLE: u32 = 0x8000;
/// TX queues, [`QUEUE_STRIDE`] apart: see [`queue`].
pub const TX_QUEUES: u64 = 0x1_0000;
/// RX queues, [`QUEUE_STRIDE`] apart: see [`queue`].
pub const RX_QUEUES: u64 = 0x2_0000;
/// Bytes from one queue's registers to the next one's.
pub const QUEUE_STRIDE: u64 = 0x80;
/// Interrupt vectors' coalescing, [`VECTOR_STRIDE`] apart: see [`vector`].
pub const VECTORS: u64 = 0x3_0000;
/// Bytes from one vector's registers to the next one's.
pub const VECTOR_STRIDE: u64 = 0x20;
/// kPIO queues, [`KPIO_STRIDE`] apart: see [`kpio`].
pub const KPIO_QUEUES: u64 = 0x3_8000;
/// Bytes from one kPIO queue's registers to the next one's.
pub const KPIO_STRIDE: u64 = 0x40;
/// The BAR of the kPIO queues' windows, one behind the other: see [`crate::kpio`].
pub const KPIO_BAR: u8 = 2;
/// The BAR of inline doorbells: a page of [`INLINE_PAGE`] for each TX queue.
pub const INLINE_BAR: u8 = 4;
/// Bytes of a queue's page of inline doorbells: two buffers, to be used in turn, so that one can be written while the
/// other is on its way.
pub const INLINE_PAGE: u64 = 512;
/// Bytes of an inline doorbell: descriptor and data.
pub const INLINE_BYTES: u64 = INLINE_PAGE / 2;
/// No vector.
pub const NO_VECTOR: u32 = 0xffff;

/// Registers of a queue, relative to its first.
pub mod queue {
    /// The doorbell: how many descriptors have been written in all, 16 bits.
    pub const TAIL: u64 = 0x00;
    /// How many descriptors are done in all, 16 bits (read only): where completions are written, those whose completions have been.
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
    /// Completions that are written at once; 0 for what the part does by itself.
    pub const BATCH: u64 = 0x24;
    /// Nanoseconds that a completion waits for others; 0 for what the part does by itself.
    pub const DELAY_NS: u64 = 0x28;
    /// Count of completions seen (RX: buffers, TX: descriptors) with [`ARM`]: interrupt when there are more.
    pub const ARM_AT: u64 = 0x2c;
    /// State (read only), below.
    pub const STATUS: u64 = 0x30;
    /// Frames dropped for want of descriptors (RX) or for bad ones (TX) (read only).
    pub const DROPPED: u64 = 0x34;

    /// Log2 of the bytes from one completion in a ring of their own to the next: 4, with
    /// [`WIDE_COMPLETIONS`](super::feature::WIDE_COMPLETIONS) 6, with [`INLINE`](super::feature::INLINE) up to 8 (RX only);
    /// 0 for 4. The completion is at the end; with `INLINE`, what is free in front of it takes frames that fit, and their
    /// buffer stays empty.
    pub const STRIDE: u64 = 0x38;

    /// Control: the queue runs.
    pub const ENABLE: u32 = 1 << 0;
    /// Control: where completions go, two bits. Nowhere: the driver reads [`HEAD`].
    pub const TO_REGISTER: u32 = 0;
    /// In place of the descriptors.
    pub const IN_PLACE: u32 = 1 << 4;
    /// The head count alone, 4 bytes (TX only).
    pub const TO_WORD: u32 = 2 << 4;
    /// To a ring of their own.
    pub const TO_RING: u32 = 3 << 4;
    /// The two bits.
    pub const COMPLETION_MODE: u32 = 3 << 4;
    /// Control: interrupts need no arming.
    pub const ALWAYS_ARMED: u32 = 1 << 8;
    /// In [`ARM_AT`].
    pub const ARM: u32 = 1 << 31;

    /// Status: runs.
    pub const RUNNING: u32 = 1 << 0;
    /// Status: stopped because the doorbell or the ring made no sense, or memory did not answer.
    pub const ERROR: u32 = 1 << 1;
}

/// Registers of a vector, relative to its first.
pub mod vector {
    /// Nanoseconds from the first completion to the interrupt.
    pub const DELAY_NS: u64 = 0x00;
    /// Packets after which it comes at once; 0 for no limit.
    pub const PACKETS: u64 = 0x04;
    /// Bit 0: the device chooses the delay by the load, up to [`DELAY_NS`].
    pub const ADAPTIVE: u64 = 0x08;
}

/// Registers of a kPIO queue, relative to its first.
pub mod kpio {
    /// Enable and modes, below. Writing [`ENABLE`] where it was clear starts with position 0 and frame number 0.
    pub const CONTROL: u64 = 0x00;
    /// State (read only), below.
    pub const STATUS: u64 = 0x04;
    /// How many lines are free again in all, 32 bits (read only).
    pub const FREED: u64 = 0x08;
    /// Lines after which [`FREED`] is written to memory; 0 counts as 1.
    pub const REPORT_EVERY: u64 = 0x0c;
    /// Bus address of 4 bytes that [`FREED`] is written to, 8 bytes; 0 for nowhere.
    pub const REPORT: u64 = 0x10;
    /// The end-of-packet signature, 8 bytes.
    pub const SIGNATURE: u64 = 0x18;
    /// Frames given up (read only).
    pub const DROPPED: u64 = 0x20;
    /// Frame numbers that were skipped (read only).
    pub const MISSING: u64 = 0x24;
    /// The position that is awaited next, counted as lines are, 32 bits: where a driver that has lost its place goes
    /// on. A write, whatever it says, gives up what waits for lines that have not come, so that the position stays.
    pub const NEXT: u64 = 0x28;
    /// Interrupt vector.
    pub const VECTOR: u64 = 0x2c;
    /// Count of lines, 32 bits: interrupt, once, when as many are free again. Whoever writes this has written so many: those
    /// that do not come for too long are given up.
    pub const ARM_AT: u64 = 0x30;

    /// Control: the queue runs.
    pub const ENABLE: u32 = 1 << 0;
    /// Control: frames have length and checksum; else the paper's signature.
    pub const FRAMED: u32 = 1 << 4;
    /// Control, with [`FRAMED`]: the filling behind a frame is not written.
    pub const SHORT_LINES: u32 = 1 << 5;

    /// Control: writes for which there is no room wait in the port, with their credits, until there is. Who writes need
    /// not count lines.
    pub const HOLD: u32 = 1 << 6;

    /// Status: runs.
    pub const RUNNING: u32 = 1 << 0;
}

/// Bits of [`CONTROL`].
pub mod control {
    /// Frames are received. TX queues send as soon as they run.
    pub const ENABLE: u32 = 1 << 0;
    /// Resets the function, its queues, rules and counters, at once; reads as 0.
    pub const RESET: u32 = 1 << 1;
}

/// Bits of [`STATUS`].
pub mod status {
    /// Ready after a reset.
    pub const READY: u32 = 1 << 0;
    /// The Ethernet link is up.
    pub const LINK_UP: u32 = 1 << 1;
}

/// Log2 of the bytes of an entry with [`feature::WIDE_COMPLETIONS`]: what precedes the completion is zero.
pub const WIDE_STRIDE: u8 = 6;

/// Bits of [`FEATURES`] and [`ENABLED`].
pub mod feature {
    /// Checks checksums of received frames.
    pub const RX_CHECKSUM: u32 = 1 << 0;
    /// Fills in checksums of sent ones.
    pub const TX_CHECKSUM: u32 = 1 << 1;
    /// Cuts TCP segments.
    pub const TSO: u32 = 1 << 2;
    /// Spreads received frames over queues.
    pub const RSS: u32 = 1 << 3;
    /// Steers flows to queues.
    pub const FLOW_RULES: u32 = 1 << 4;
    /// Receives frames of all addresses.
    pub const PROMISCUOUS: u32 = 1 << 5;
    /// Receives frames of all groups; broadcast is always received.
    pub const ALL_GROUPS: u32 = 1 << 6;
    /// Takes frames by programmed I/O.
    pub const KPIO: u32 = 1 << 7;
    /// Takes data in descriptors and descriptors in doorbells; gives data with completions.
    pub const INLINE: u32 = 1 << 8;
    /// Several functions share this one's address: rules of the internal switch say which of them a flow is for.
    pub const STATION: u32 = 1 << 9;
    /// Completions in a ring of their own take a whole line each, [`WIDE_STRIDE`](super::WIDE_STRIDE).
    pub const WIDE_COMPLETIONS: u32 = 1 << 10;
    /// A rule of a function's own table also makes its flow come to that function, as queues are known to the whole card: rules
    /// of the internal switch are not needed.
    pub const GLOBAL_RULES: u32 = 1 << 11;
}

/// Bits of [`EVENTS`].
pub mod event {
    /// The Ethernet link went up or down.
    pub const LINK: u32 = 1 << 0;
    /// A queue stopped with an error.
    pub const QUEUE_ERROR: u32 = 1 << 1;
    /// Queues have something to tell, and no messages to do it by.
    pub const QUEUES: u32 = 1 << 2;
}

/// Bits of [`RSS_TYPES`].
pub mod rss {
    /// Addresses.
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
    /// Frames for nobody here.
    pub const RX_FILTERED: usize = 6;
    /// Frames with a wrong check sequence.
    pub const RX_FCS_ERRORS: usize = 7;
    /// Frames that were too short or too long.
    pub const RX_LENGTH_ERRORS: usize = 8;
    /// Frames dropped because the queue had no buffer.
    pub const RX_NO_BUFFER: usize = 9;
    /// Frames dropped because the device's own memory was full.
    pub const RX_OVERFLOW: usize = 10;
    /// Frames whose queue does not run.
    pub const RX_NO_QUEUE: usize = 11;
    /// Segments cut from larger ones.
    pub const TX_SEGMENTS: usize = 12;
    /// Interrupts raised.
    pub const INTERRUPTS: usize = 13;
    /// Descriptor reads.
    pub const FETCHES: usize = 14;
    /// Completion writes.
    pub const WRITE_BACKS: usize = 15;
    /// Frames that came by kPIO and were sent.
    pub const KPIO_FRAMES: usize = 16;
    /// Lines of kPIO queues that were whole.
    pub const KPIO_LINES: usize = 17;
    /// Writes to kPIO queues that were not a whole line.
    pub const KPIO_PIECES: usize = 18;
    /// Writes to a line before which another was not whole.
    pub const KPIO_AHEAD: usize = 19;
    /// Frames whose first line came by kPIO and that were given up.
    pub const KPIO_DROPPED: usize = 20;
    /// Frame numbers that were skipped: of frames that were given up, and of those that never began.
    pub const KPIO_MISSING: usize = 21;
    /// Writes to kPIO positions for which there was no room, or that were over.
    pub const KPIO_OUTSIDE: usize = 22;
    /// Writes over bytes of kPIO queues that had been written.
    pub const KPIO_TWICE: usize = 23;
    /// Times that a line which did not come was given up.
    pub const KPIO_WAITS: usize = 24;
    /// Packets taken from inline doorbells, without a descriptor read.
    pub const INLINE_PACKETS: usize = 25;
    /// Frames of virtual functions that were not sent, because their source address was another's.
    pub const TX_SPOOFED: usize = 26;
    /// Descriptors read, of the rings in both directions.
    pub const FETCHED: usize = 27;
    /// Bytes of completion writes, without frames that go with them.
    pub const WRITTEN_BACK: usize = 28;
    /// Received frames that stayed in the device for the driver to fetch.
    pub const RX_HELD: usize = 29;
    /// Requests to send nothing that were received (IEEE 802.3, annex 31B).
    pub const RX_PAUSES: usize = 30;
    /// Such requests that were sent, and those that took them back.
    pub const TX_PAUSES: usize = 31;
    /// How many there are.
    pub const COUNT: usize = 32;
    /// What each is called.
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
