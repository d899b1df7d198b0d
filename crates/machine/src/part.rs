//! What a part file says: one card with a DMA engine.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::{LinkGeneration, LinkWidth, PayloadLimit, TagBits};
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// A card as a part file describes it.
    pub struct Part {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The part file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the card is, in a line.
        summary: String,
        /// How directories of measured results name it, such as `nfp6000`; its own name if not given.
        measured_as: Option<String>,
        /// What its port can do.
        link: LinkCapability,
        /// Its DMA engine.
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
    const WHAT: &'static str = "part";
    const FOLDER: &'static str = "machines/parts";
}

record! {
    /// What a card's port can do.
    pub struct LinkCapability {
        /// Highest generation.
        generation: Figure<LinkGeneration>,
        /// Most lanes.
        width: Figure<LinkWidth>,
        /// Largest payload (bytes); the link uses the smaller of both ends'.
        mps_bytes: Figure<PayloadLimit>,
        /// Bits of its tags: 5, 8 (Extended Tag Field Supported) or 10 (10-Bit Tag Requester Supported), as far as host
        /// and switches let it.
        tag_bits: Figure<TagBits>,
        /// Receive buffer space that the card advertises.
        credits: crate::host::Credits,
        /// From the last symbol of a TLP leaving one end to the other end having it; the slot's if not given.
        latency: Option<Figure<Duration>>,
        /// For how long the card lets a TLP wait for others to be acknowledged with it; as the slot if not given.
        ack_delay: Option<Figure<Duration>>,
        /// For how long the card lets freed buffer space wait for more; as the slot if not given.
        credit_update_delay: Option<Figure<Duration>>,
        /// Whether its functions advertise access control services, with none of them: what cards say that pass no requests
        /// from one function to another. They advertise none if not given.
        access_control: Option<Figure<bool>>,
        /// Entries of the invalidate queue of each function, 1 to 32, if it advertises address translation services; the
        /// kernel leaves them off. None are advertised if not given.
        translation_queue: Option<Figure<Count>>,
    }
    check |link: &LinkCapability, check: &mut Check<'_>| {
        link.credits.check_expressible(link.generation.value.get(), check);
        link.credits.check_room(link.mps_bytes.value, check);
        if let Some(depth) = &link.translation_queue {
            check.require_within("translation_queue", depth.value.get().into(), (1, 32), "entries are not possible");
        }
    }
}

record! {
    /// A DMA engine: how it issues requests and takes completions, and what that costs.
    pub struct DmaEngine {
        /// Reads that may be outstanding at once.
        tags: Figure<Count>,
        /// Data of reads that may be outstanding at once (bytes).
        read_buffer: Figure<Bytes>,
        /// Largest read request that it makes, whatever MRRS allows (bytes).
        max_read_request: Figure<PayloadLimit>,
        /// Least interval between two read requests.
        issue_interval: Figure<Duration>,
        /// From a read's last completion having been dealt with until its tag is free.
        tag_release: Figure<Duration>,
        /// Writes in hand at once.
        writes_in_hand: Figure<Count>,
        /// How long the card waits for the completion of a read; 50 ms unless given (PCIe Base Specification 6.0, 7.5.3.16:
        /// 50 us to 50 ms where the registers leave it to the device).
        completion_timeout: Option<Figure<Duration>>,
        /// How long the card takes to answer a configuration request; 100 ns unless given (assumed: a few cycles of its
        /// PCIe core; no result depends on it, cards are set up before tests begin).
        config_latency: Option<Figure<Duration>>,
        /// Resolution of the timestamps that the card takes; zero for none.
        timestamp_tick: Figure<Duration>,
        /// Taking completions off the link.
        drain: Drain,
        /// Sending posted requests.
        transmit: Transmit,
        /// The path between the port and the card's memory.
        bus: Bus,
        /// The card's memory, where data comes from and goes to.
        memory: DeviceMemory,
        /// The benchmark's firmware on the card.
        firmware: Firmware,
        /// The interface that moves blocks between host and card memory.
        dma: InterfaceTiming,
        /// The interface by which a processor of the card reads and writes a few bytes
        /// itself; a card without one does without command tests.
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
    /// Taking completions off the link.
    pub struct Drain {
        /// For the first completion of a request, on top.
        per_request: Figure<Duration>,
        /// For each completion.
        per_completion: Figure<Duration>,
        /// For each byte of a completion, header and framing included.
        per_byte: Figure<Duration>,
        /// What each byte of a write takes from it while its data is fetched.
        per_written_byte: Figure<Duration>,
        /// A completion, header and framing included, takes a multiple of this (bytes).
        granule: Figure<Bytes>,
    }
    check |drain: &Drain, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", drain.per_byte.value);
        check.require_per_byte("per_written_byte", drain.per_written_byte.value);
        check.require_bytes("granule", drain.granule.value, (Bytes::new(1), Bytes::kib(4)));
    }
}

record! {
    /// Sending posted requests.
    pub struct Transmit {
        /// For each byte; zero if only the wire counts.
        per_byte: Figure<Duration>,
        /// What a TLP with a 3 DW header takes beyond its payload: header, framing, gaps (bytes).
        /// A 4 DW header takes what the host's `long_header_penalty` says on top.
        overhead: Figure<Bytes>,
        /// Width of the path (bytes). The TLPs of one request share beats in pairs;
        /// one without a partner is padded to a whole beat.
        beat: Figure<Bytes>,
    }
    check |transmit: &Transmit, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", transmit.per_byte.value);
        check.require_bytes("overhead", transmit.overhead.value, (Bytes::ZERO, Bytes::kib(4)));
        check.require_bytes("beat", transmit.beat.value, (Bytes::new(1), Bytes::kib(4)));
    }
}

record! {
    /// The path between the port and the card's memory, which both directions share.
    pub struct Bus {
        /// For each byte in either direction.
        per_byte: Figure<Duration>,
        /// To change the direction.
        turn: Figure<Duration>,
        /// While both directions are wanted, they take turns after this much (bytes).
        burst: Figure<Bytes>,
        /// Larger transfers than this are not interrupted (bytes).
        longest_interrupted: Figure<Bytes>,
    }
    check |bus: &Bus, check: &mut Check<'_>| {
        check.require_per_byte("per_byte", bus.per_byte.value);
        check.require_bytes("burst", bus.burst.value, (Bytes::new(1), Bytes::mib(1)));
        check.require_bytes("longest_interrupted", bus.longest_interrupted.value, (Bytes::ZERO, Bytes::mib(1)));
    }
}

record! {
    /// The card's memory: read and written in chunks, each by one or more operations.
    pub struct DeviceMemory {
        /// Bytes in a chunk, counted from the word in which a transfer begins.
        chunk: Figure<Bytes>,
        /// Bytes in a word; an end within a word is an operation of its own when memory is written.
        word: Figure<Bytes>,
        /// For each transfer.
        per_transfer: Figure<Duration>,
        /// For each operation.
        per_operation: Figure<Duration>,
        /// For each chunk of unaligned data that came in completions no larger than a chunk, on top.
        per_ragged_chunk: Figure<Duration>,
        /// Writing one read's data to memory: for each byte. Several reads overlap.
        write_out_per_byte: Figure<Duration>,
        /// For each byte that a first piece lacks of 64, which need not be waited for.
        write_out_first_per_byte: Figure<Duration>,
        /// For each completion after the first.
        write_out_per_completion: Figure<Duration>,
        /// The same for a completion whose data begins within the first chunk.
        write_out_within_chunk: Figure<Duration>,
        /// For each operation on a last chunk of which less than half is written, a lone tail apart.
        write_out_short_chunk: Figure<Duration>,
        /// For a first byte that does not begin a word.
        unaligned_head: Figure<Duration>,
        /// For a last byte that does not end a word.
        unaligned_tail: Figure<Duration>,
    }
    check |memory: &DeviceMemory, check: &mut Check<'_>| {
        check.require_per_byte("write_out_per_byte", memory.write_out_per_byte.value);
        check.require_per_byte("write_out_first_per_byte", memory.write_out_first_per_byte.value);
        for (key, figure) in [("chunk", &memory.chunk), ("word", &memory.word)] {
            check.require(
                figure.value.get().is_power_of_two() && figure.value.get() <= 4096,
                key,
                format!("{} is no unit of access", figure.value),
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
    /// What drives the engine in a test: threads of a processor, or a state machine.
    pub struct Firmware {
        /// Transactions of a bandwidth test that it keeps in hand, each beginning its next one when it is over.
        workers: Figure<Count>,
        /// From the end of a latency test's sample to the beginning of the next.
        sample_gap: Figure<Duration>,
        /// Answering a read of one of its registers.
        register_latency: Figure<Duration>,
    }
    check |firmware: &Firmware, check: &mut Check<'_>| {
        let workers = u64::from(firmware.workers.value.get());
        check.require_within("workers", workers, (1, 4096), "transactions are too many");
    }
}

record! {
    /// How an interface of the card begins and ends a transfer.
    pub struct InterfaceTiming {
        /// From a request reaching the engine until its first TLP can be sent.
        start_latency: Figure<Duration>,
        /// From a read's data being in place until whoever asked knows.
        read_done_latency: Figure<Duration>,
        /// For each byte of a completion, where data goes straight to who asked.
        hand_over_per_byte: Figure<Duration>,
        /// For each completion of such a read after its first.
        hand_over_per_completion: Figure<Duration>,
        /// Until who asked for a write knows that it has left; the later of this way ..
        write_done: Figure<Duration>,
        /// .. with each byte adding this ..
        write_done_per_byte: Figure<Duration>,
        /// .. and that way ..
        write_drained: Figure<Duration>,
        /// .. with each byte adding that.
        write_drained_per_byte: Figure<Duration>,
    }
    check |timing: &InterfaceTiming, check: &mut Check<'_>| {
        check.require_per_byte("hand_over_per_byte", timing.hand_over_per_byte.value);
        check.require_per_byte("write_done_per_byte", timing.write_done_per_byte.value);
        check.require_per_byte("write_drained_per_byte", timing.write_drained_per_byte.value);
    }
}

record! {
    /// The command interface.
    pub struct CommandInterface {
        /// Largest transfer of one command (bytes).
        largest: Figure<Bytes>,
        /// Multiple to which addresses are cut off (bytes).
        address_granule: Figure<Bytes>,
        /// *Quirk*: address bits that reach the bus; what lies above aliases to lower memory.
        address_bits: Figure<Count>,
        /// Moving its window over host memory, where it shows one chunk of a buffer at a time.
        window_change: Figure<Duration>,
        /// Its times.
        timing: InterfaceTiming,
    }
    check |command: &CommandInterface, check: &mut Check<'_>| {
        let bits = command.address_bits.value.get();
        check.require((32..=64).contains(&bits), "address_bits", format!("not {bits} bits"), "from 32 to 64");
        let granule = command.address_granule.value;
        check.require(
            granule.get().is_power_of_two() && granule <= Bytes::kib(4),
            "address_granule",
            format!("{granule} is no alignment"),
            "a power of two up to 4 KiB",
        );
        check.require_bytes("largest", command.largest.value, (Bytes::new(1), Bytes::kib(4)));
    }
}
