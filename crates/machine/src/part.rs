//! What a part file says: one card with a DMA engine.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::link::{LinkGeneration, LinkWidth, PayloadLimit};
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
        /// How directories of measured results name it, such as `nfp6000`.
        measured_as: Option<String>,
        /// What its port can do.
        link: LinkCapability,
        /// Its DMA engine.
        dma_engine: DmaEngine,
    }
    check |part: &Part, check: &mut Check<'_>| {
        let most = if part.link.extended_tags.value { 256 } else { 32 };
        check.at("dma_engine").require(
            part.dma_engine.tags.value.get() <= most,
            "tags",
            format!("{} reads cannot be told apart", part.dma_engine.tags.value),
            format!("at most {most}: 32, or 256 with `extended_tags`"),
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
        /// Whether tags have 8 bits (Extended Tag Field Supported) rather than 5.
        extended_tags: Figure<bool>,
        /// Receive buffer space that the card advertises.
        credits: crate::host::Credits,
    }
}

record! {
    /// A DMA engine: how it issues requests and takes completions, and what that costs.
    pub struct DmaEngine {
        /// Reads that may be outstanding at once.
        tags: Figure<Count>,
        /// Resolution of the timestamps that it takes.
        timestamp_tick: Figure<Duration>,
        /// The interface that moves blocks between host and card memory.
        dma: DmaInterface,
        /// The interface by which a processor of the card reads and writes a
        /// few bytes itself; a card without one does without command tests.
        command: Option<CommandInterface>,
        /// Taking completions.
        drain: Drain,
        /// The card's memory, where data comes from and goes to.
        memory: DeviceMemory,
        /// Changing between reading and writing.
        turnaround: Turnaround,
        /// How the card's port packs TLPs.
        port: DevicePort,
    }
}

record! {
    /// The DMA interface.
    pub struct DmaInterface {
        /// Least interval between two reads being issued.
        issue_interval: Figure<Duration>,
        /// From the start of an operation until its first TLP leaves.
        issue_overhead: Figure<Duration>,
        /// From the last byte in card memory until software knows.
        completion_overhead: Figure<Duration>,
        /// From a read's last byte until its tag is free again.
        tag_release: Figure<Duration>,
        /// From a write's start until a read that follows it is issued: whatever its size.
        write_then_read: Figure<Duration>,
        /// The same: for each byte.
        write_then_read_per_byte: Figure<Duration>,
        /// From a write's start until its data has left: whatever its size.
        write_out: Figure<Duration>,
        /// The same: for each byte.
        write_out_per_byte: Figure<Duration>,
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
        /// From the command until its TLP leaves, and from the data until software has it.
        overhead: Figure<Duration>,
        /// What each byte adds.
        per_byte: Figure<Duration>,
        /// What a write adds that crosses into another 64-byte line.
        crossing: Figure<Duration>,
        /// From a write until a read that follows it is issued.
        write_then_read: Figure<Duration>,
    }
}

record! {
    /// Taking completions off the link.
    pub struct Drain {
        /// For each request.
        per_request: Figure<Duration>,
        /// For each completion.
        per_completion: Figure<Duration>,
        /// For each byte of a completion, header and padding included.
        per_byte: Figure<Duration>,
        /// Multiple to which a completion with its header is padded, on the wire and here (bytes).
        granule: Figure<Bytes>,
    }
}

record! {
    /// The card's memory.
    pub struct DeviceMemory {
        /// Pieces in which it is accessed (bytes, at multiples of the same).
        chunk: Figure<Bytes>,
        /// What every operation costs.
        base: Figure<Duration>,
        /// What every access to a chunk costs.
        per_chunk: Figure<Duration>,
        /// What every chunk costs on top when it came in completions no larger than it.
        per_small_chunk: Figure<Duration>,
        /// Whole words are accessed together, partial ones at the ends of a chunk by themselves (bytes).
        word: Figure<Bytes>,
        /// From a chunk's arrival until it is written: for each 64 bytes.
        write_out_per_64_bytes: Figure<Duration>,
        /// By how much that is less for each byte that the first 64 lack.
        write_out_per_missing_byte: Figure<Duration>,
        /// What every completion after a request's first adds to that.
        write_out_per_completion: Figure<Duration>,
        /// What a partial word at the start adds to a single read.
        unaligned_start: Figure<Duration>,
        /// What a partial word at the end adds to a single read.
        unaligned_end: Figure<Duration>,
        /// What a partial word at either end adds to a single write.
        unaligned_write: Figure<Duration>,
    }
    check |memory: &DeviceMemory, check: &mut Check<'_>| {
        for (key, figure) in [("chunk", &memory.chunk), ("word", &memory.word)] {
            check.require(
                figure.value.get().is_power_of_two() && figure.value.get() <= 4096,
                key,
                format!("{} are no unit of access", figure.value),
                "a power of two up to 4 KiB",
            );
        }
    }
}

record! {
    /// Changing between reading and writing, on a path that both share.
    pub struct Turnaround {
        /// For each operation.
        per_request: Figure<Duration>,
        /// For each byte on the shared path.
        per_byte: Figure<Duration>,
        /// Least time that a change of direction takes.
        least: Figure<Duration>,
        /// What each byte beyond 256 of the operation adds to it.
        change_per_byte: Figure<Duration>,
        /// Most time that a change of direction takes.
        most: Figure<Duration>,
    }
    check |turnaround: &Turnaround, check: &mut Check<'_>| {
        check.require(
            turnaround.least.value <= turnaround.most.value,
            "least",
            format!("{} is more than `most`", turnaround.least.value),
            format!("at most {}", turnaround.most.value),
        );
    }
}

record! {
    /// How the card's port packs TLPs.
    pub struct DevicePort {
        /// Width of the transmit path (bytes): TLPs of one request are packed in pairs, one without a partner is padded to this.
        transmit_beat: Figure<Bytes>,
        /// Wire bytes of a posted write's TLP beyond its payload (header, framing, alignment and a share of DLLPs).
        write_overhead: Figure<Bytes>,
        /// DLLP bytes that go with each request, beyond what the link accounts for.
        dllp_per_request: Figure<Bytes>,
    }
}
