//! The part file: a card with a DMA engine.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::{LinkGeneration, LinkWidth, PayloadLimit, TagBits};
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// A card.
    pub struct Part {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The part file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Its name in directories of measured results, such as `nfp6000`; its own name if not given.
        measured_as: Option<String>,
        /// Capability of its port.
        link: LinkCapability,
        /// What moves data between the card and host memory: engine, interfaces and card memory.
        dma_engine: DmaEngine,
    }
    check |part: &Part, check: &mut Check<'_>| {
        let most = part.link.tag_bits.value.tags();
        check.at("dma_engine").require(
            part.dma_engine.tags.value.get() <= most,
            "tags",
            format!("{} reads cannot be told apart", part.dma_engine.tags.value),
            format!("at most {most}: 32 with `tag_bits` 5, 256 with 8, 768 with 10"),
        );
    }
}

impl Kindred for Part {
    const WORD: &'static str = "card";
    const WHAT: &'static str = "part";
    const LISTED: &'static str = Self::WORD;
    const FOLDER: &'static str = "machines/parts";
    const ABOUT: &'static str = "A card with a DMA engine, as pcie-bench runs on.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["nfp6000", "dma_engine.tags = { value = 64, source = \"datasheet: ...\" }"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// Capability of a card's port.
    pub struct LinkCapability {
        /// Maximum generation.
        generation: Figure<LinkGeneration>,
        /// Maximum number of lanes.
        width: Figure<LinkWidth>,
        /// Maximum payload (bytes); the link uses the smaller value of both ends.
        mps_bytes: Figure<PayloadLimit>,
        /// Number of tag bits: 5, 8 (Extended Tag Field Supported) or 10 (10-Bit Tag Requester Supported), as far as
        /// host and switches allow.
        tag_bits: Figure<TagBits>,
        /// Receive buffer space that the card advertises.
        credits: crate::host::Credits,
        /// Time from the last symbol of a TLP leaving one end until the other end has it; the slot's if not given.
        latency: Option<Figure<Duration>>,
        /// How long the card delays an acknowledgement to cover further TLPs; the slot's if not given.
        ack_delay: Option<Figure<Duration>>,
        /// How long freed buffer space waits for more before the card advertises it; the slot's if not given.
        credit_update_delay: Option<Figure<Duration>>,
        /// Whether its functions advertise access control services without any capability, as cards do that never
        /// forward requests between functions; false if not given.
        access_control: Option<Figure<bool>>,
        /// Entries of the invalidate queue of each function, 1 to 32, if it advertises address translation services,
        /// which the kernel does not enable; not advertised if not given.
        translation_queue: Option<Figure<Count>>,
        /// Latency of memory that its functions tolerate, which they report where ports take such reports (LTR); they report none if
        /// not given.
        latency_tolerance: Option<Figure<Duration>>,
        /// Whether payload may pass earlier writes (relaxed ordering), which the host can forbid in Device Control; false if not
        /// given. What says that payload is there, completions and messages, never passes it.
        relaxed_ordering: Option<Figure<bool>>,
        /// Whether payload may pass writes of other functions (ID-based ordering), once the host enables it in Device Control 2;
        /// false if not given.
        id_based_ordering: Option<Figure<bool>>,
        /// Whether payload is said not to be in caches (no snoop), which the host can forbid in Device Control; false if not given.
        /// Hosts snoop nevertheless.
        no_snoop: Option<Figure<bool>>,
    }
    check |link: &LinkCapability, check: &mut Check<'_>| {
        // A link of a lower generation, which a scenario can also ask for, advertises what it can of them.
        link.credits.check_expressible(link.generation.value.get().max(4), check);
        link.credits.check_room(link.mps_bytes.value, check);
        if let Some(depth) = &link.translation_queue {
            check.require_within("translation_queue", depth.value.get().into(), (1, 32), "entries are not possible");
        }
        if let Some(tolerance) = &link.latency_tolerance {
            check.require(
                (Duration::from_ns(1)..=Duration::from_ms(1000)).contains(&tolerance.value),
                "latency_tolerance",
                format!("{} cannot be reported", tolerance.value),
                "from 1 ns to 1 s, such as `100 us`",
            );
        }
    }
}

record! {
    /// A DMA engine: issue of requests, processing of completions, and their costs.
    pub struct DmaEngine {
        /// Maximum outstanding reads.
        tags: Figure<Count>,
        /// Maximum outstanding read data (bytes).
        read_buffer: Figure<Bytes>,
        /// Maximum read request size of the engine, even if MRRS allows more (bytes).
        max_read_request: Figure<PayloadLimit>,
        /// Minimum interval between two read requests.
        issue_interval: Figure<Duration>,
        /// Time from the processing of a read's last completion until its tag is free.
        tag_release: Figure<Duration>,
        /// Maximum concurrent writes.
        writes_in_hand: Figure<Count>,
        /// Completion timeout for reads; 50 ms if not given (PCIe Base Specification 6.0, 7.5.3.16: 50 us to 50 ms by
        /// default).
        completion_timeout: Option<Figure<Duration>>,
        /// Time to answer a configuration request; 100 ns if not given (assumed: a few cycles of its PCIe core; no
        /// result depends on it, since cards are configured before tests start).
        config_latency: Option<Figure<Duration>>,
        /// Resolution of the card's timestamps; zero for exact ones.
        timestamp_tick: Figure<Duration>,
        /// Reception of completions.
        drain: Drain,
        /// Transmission of posted requests.
        transmit: Transmit,
        /// The path between the port and the card's memory.
        bus: Bus,
        /// The card's memory, source and destination of data.
        memory: DeviceMemory,
        /// The benchmark's firmware on the card.
        firmware: Firmware,
        /// The interface that moves blocks between host and card memory.
        dma: InterfaceTiming,
        /// The interface by which a processor of the card reads and writes a few bytes itself; without it, command
        /// tests are not available.
        command: Option<CommandInterface>,
    }
    check |engine: &DmaEngine, check: &mut Check<'_>| {
        check.require_bytes("read_buffer", engine.read_buffer.value, (Bytes::new(64), Bytes::gib(1)));
        let writes = u64::from(engine.writes_in_hand.value.get());
        check.require_within("writes_in_hand", writes, (1, 4096), "writes are too many");
        check.require_completion_timeout(engine.completion_timeout.as_ref());
    }
}

record! {
    /// Reception of completions.
    pub struct Drain {
        /// Additional time for the first completion of a request.
        per_request: Figure<Duration>,
        /// Time per completion.
        per_completion: Figure<Duration>,
        /// Time per byte of a completion, header and framing included.
        per_byte: Figure<Duration>,
        /// Time per byte of a write while its data are fetched.
        per_written_byte: Figure<Duration>,
        /// Completions, header and framing included, are rounded up to a multiple of this (bytes).
        granule: Figure<Bytes>,
    }
    check |drain: &Drain, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", drain.per_byte.value);
        check.require_per_byte("per_written_byte", drain.per_written_byte.value);
        check.require_bytes("granule", drain.granule.value, (Bytes::new(1), Bytes::kib(4)));
    }
}

record! {
    /// Transmission of posted requests.
    pub struct Transmit {
        /// Time per byte; zero if only the wire limits.
        per_byte: Figure<Duration>,
        /// Overhead of a TLP with a 3 DW header: header, framing, gaps (bytes). A 4 DW header adds the host's
        /// `long_header_penalty`.
        overhead: Figure<Bytes>,
        /// Width of the data path (bytes). The TLPs of a request share beats in pairs; one without a partner is
        /// padded to a whole beat.
        beat: Figure<Bytes>,
    }
    check |transmit: &Transmit, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", transmit.per_byte.value);
        check.require_bytes("overhead", transmit.overhead.value, (Bytes::ZERO, Bytes::kib(4)));
        check.require_bytes("beat", transmit.beat.value, (Bytes::new(1), Bytes::kib(4)));
    }
}

record! {
    /// The path between the port and the card's memory, shared by both directions.
    pub struct Bus {
        /// Time per byte in either direction.
        per_byte: Figure<Duration>,
        /// Time to change direction.
        turn: Figure<Duration>,
        /// While both directions are active, they alternate after this many bytes.
        burst: Figure<Bytes>,
        /// Transfers above this size are not interrupted (bytes).
        longest_interrupted: Figure<Bytes>,
    }
    check |bus: &Bus, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", bus.per_byte.value);
        check.require_bytes("burst", bus.burst.value, (Bytes::new(1), Bytes::mib(1)));
        check.require_bytes("longest_interrupted", bus.longest_interrupted.value, (Bytes::ZERO, Bytes::mib(1)));
    }
}

record! {
    /// The card's memory: accessed in chunks, each by one or more operations.
    pub struct DeviceMemory {
        /// Size of a chunk, counted from the word in which a transfer starts (bytes).
        chunk: Figure<Bytes>,
        /// Size of a word (bytes); on writes, a partial word at an end is a separate operation.
        word: Figure<Bytes>,
        /// Time per transfer.
        per_transfer: Figure<Duration>,
        /// Time per operation.
        per_operation: Figure<Duration>,
        /// Additional time per chunk of unaligned data received in completions no larger than a chunk.
        per_ragged_chunk: Figure<Duration>,
        /// Time per byte to write a read's data to memory. Several reads overlap.
        write_out_per_byte: Figure<Duration>,
        /// Time per completion after the first.
        write_out_per_completion: Figure<Duration>,
        /// Time per completion whose data start within the first chunk.
        write_out_within_chunk: Figure<Duration>,
        /// Time per operation on a last chunk that is less than half written, except for a lone tail.
        write_out_short_chunk: Figure<Duration>,
        /// Additional time if the first byte does not start a word.
        unaligned_head: Figure<Duration>,
        /// Additional time if the last byte does not end a word.
        unaligned_tail: Figure<Duration>,
    }
    check |memory: &DeviceMemory, check: &mut Check<'_>| {
        check.require_per_byte("write_out_per_byte", memory.write_out_per_byte.value);
        for (key, figure) in [("chunk", &memory.chunk), ("word", &memory.word)] {
            check.require(
                figure.value.get().is_power_of_two() && figure.value.get() <= 4096,
                key,
                format!("{} is not a unit of access", figure.value),
                "a power of two up to 4 KiB",
            );
        }
        check.require(
            memory.word.value <= memory.chunk.value,
            "word",
            format!("{} is more than a chunk", memory.word.value),
            format!("at most {}", memory.chunk.value),
        );
    }
}

record! {
    /// Drives the engine in a test: threads of a processor, or a state machine.
    pub struct Firmware {
        /// Concurrent transactions of a bandwidth test; each starts its next one when it ends.
        workers: Figure<Count>,
        /// Time from the end of a latency sample to the start of the next.
        sample_gap: Figure<Duration>,
        /// Time to answer a read of one of its registers.
        register_latency: Figure<Duration>,
    }
    check |firmware: &Firmware, check: &mut Check<'_>| {
        let workers = u64::from(firmware.workers.value.get());
        check.require_within("workers", workers, (1, 4096), "transactions are too many");
    }
}

record! {
    /// How an interface of the card starts and ends a transfer.
    pub struct InterfaceTiming {
        /// Time from a request reaching the engine until its first TLP can be sent.
        start_latency: Figure<Duration>,
        /// Time from a read's data being in place until the requester knows.
        read_done_latency: Figure<Duration>,
        /// Time per byte of a completion, if data go directly to the requester.
        hand_over_per_byte: Figure<Duration>,
        /// Time per completion of such a read after its first.
        hand_over_per_completion: Figure<Duration>,
        /// Time until the requester knows that a write has left: the maximum of this path ..
        write_done: Figure<Duration>,
        /// .. plus this per byte ..
        write_done_per_byte: Figure<Duration>,
        /// .. and of that path ..
        write_drained: Figure<Duration>,
        /// .. plus that per byte.
        write_drained_per_byte: Figure<Duration>,
    }
    check |timing: &InterfaceTiming, check: &mut Check<'_>| {
        check.require_per_byte("hand_over_per_byte", timing.hand_over_per_byte.value);
        check.require_per_byte("write_done_per_byte", timing.write_done_per_byte.value);
        check.require_per_byte("write_drained_per_byte", timing.write_drained_per_byte.value);
    }
}

record! {
    /// The command interface, by which a processor of the card reads and writes a few bytes itself.
    pub struct CommandInterface {
        /// Maximum transfer size of a command (bytes).
        largest: Figure<Bytes>,
        /// Addresses are truncated to a multiple of this (bytes).
        address_granule: Figure<Bytes>,
        /// *Quirk*: number of address bits on the bus; higher addresses alias to lower memory.
        address_bits: Figure<Count>,
        /// Time to move its window over host memory, which shows one chunk of a buffer at a time.
        window_change: Figure<Duration>,
        /// When a transfer through it starts, and when the requester knows that it is done.
        timing: InterfaceTiming,
    }
    check |command: &CommandInterface, check: &mut Check<'_>| {
        let bits = command.address_bits.value.get();
        check.require((32..=64).contains(&bits), "address_bits", format!("not {bits} bits"), "from 32 to 64");
        let granule = command.address_granule.value;
        check.require(
            granule.get().is_power_of_two() && granule <= Bytes::kib(4),
            "address_granule",
            format!("{granule} is not an alignment"),
            "a power of two up to 4 KiB",
        );
        check.require_bytes("largest", command.largest.value, (Bytes::new(1), Bytes::kib(4)));
    }
}
