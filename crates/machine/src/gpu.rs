//! What a GPU's file says.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{ByteRate, Bytes, Duration};

record! {
    /// A GPU as its file describes it.
    pub struct Gpu {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The GPU file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the GPU is, in a line.
        summary: String,
        /// What its port can do.
        link: LinkCapability,
        /// What gives its engines work, and its programs' way to memory.
        controller: GpuController,
        /// Its copy engines.
        copy_engine: GpuCopyEngine,
    }
    check |gpu: &Gpu, check: &mut Check<'_>| {
        let (memory, aperture) = (gpu.controller.memory.value, gpu.controller.aperture.value);
        let mut within = check.at("controller");
        within.require(
            memory.get() % (1 << 20) == 0 && (1 << 20..=1 << 40).contains(&memory.get()),
            "memory",
            format!("{memory} of memory are not possible"),
            "whole MiB, up to 1 TiB",
        );
        within.require(
            aperture.get().is_power_of_two() && (1 << 20..=1 << 40).contains(&aperture.get()),
            "aperture",
            format!("{aperture} are no size of a BAR"),
            "a power of two from 1 MiB to 1 TiB",
        );
        within.require(
            !gpu.controller.poll_interval.value.is_zero() && !gpu.controller.acquire_interval.value.is_zero(),
            "poll_interval",
            "who looks without pause never gets anywhere",
            "such as `100 ns`, and as much for `acquire_interval`",
        );
        let entries = gpu.controller.fetch_entries.value.get().into();
        within.require_within("fetch_entries", entries, (1, 512), "entries are no read");
        let engine = &gpu.copy_engine;
        let mut within = check.at("copy_engine");
        within.require_within("count", engine.count.value.get().into(), (1, 16), "copy engines are not possible");
        // A few are left to fetch commands with.
        let most = gpu.link.tag_bits.value.tags().saturating_sub(GPU_OTHER_TAGS) / engine.count.value.get().max(1);
        let what = "reads of each engine cannot be told apart by the link's `tag_bits`";
        within.require_within("tags", engine.tags.value.get().into(), (1, most.into()), what);
        let writes = engine.writes.value.get().into();
        within.require_within("writes", writes, (1, 64), "writes of an engine are not modelled");
        let request = engine.read_request.value.get();
        within.require(
            request.is_power_of_two() && (64..=4096).contains(&request),
            "read_request",
            format!("reads of {request} B are not possible"),
            "a power of two from 64 B to 4 KiB",
        );
    }
}

/// Tags that are not the copy engines'.
pub const GPU_OTHER_TAGS: u32 = 16;

impl Kindred for Gpu {
    const WHAT: &'static str = "GPU";
    const FOLDER: &'static str = "machines/gpus";
}

record! {
    /// What gives a GPU's engines work, and its programs' way to memory.
    pub struct GpuController {
        /// PCI vendor and device number, such as `10de:0ff3`.
        pci_id: Figure<String>,
        /// Whether it has an interrupt message (MSI) beside its legacy interrupt; it has if not given.
        message: Option<Figure<bool>>,
        /// Bytes of its memory.
        memory: Figure<Bytes>,
        /// Bytes of it, from its beginning, that cores and peers can reach.
        aperture: Figure<Bytes>,
        /// Rate at which memory is copied within itself.
        memory_rate: Figure<ByteRate>,
        /// A register read, or a read of memory from outside.
        register_read: Figure<Duration>,
        /// What an engine takes to decode a command.
        command: Figure<Duration>,
        /// Entries of a channel's ring, of 8 B each, that are fetched at once.
        fetch_entries: Figure<Count>,
        /// From a channel being chosen until its engine has its state and begins to fetch its commands.
        channel_load: Figure<Duration>,
        /// Between two looks at a semaphore for which a channel waits.
        acquire_interval: Figure<Duration>,
        /// From a launch's command until the program's first instruction.
        launch: Figure<Duration>,
        /// From a program's load until its request is at the link, and from its answer there to the program.
        access: Figure<Duration>,
        /// From a program's store until its write is at the link.
        store: Figure<Duration>,
        /// A program's load from the GPU's own memory.
        local_load: Figure<Duration>,
        /// From a write of others at the link until the GPU's programs see it in its memory.
        incoming: Figure<Duration>,
        /// Between two looks of a program at its GPU's own memory; they overlap. By the bus, each waits for the last one's answer.
        poll_interval: Figure<Duration>,
    }
}

record! {
    /// Copy engines.
    pub struct GpuCopyEngine {
        /// How many there are.
        count: Figure<Count>,
        /// Reads that each has under way at most.
        tags: Figure<Count>,
        /// Bytes of such a read.
        read_request: Figure<Bytes>,
        /// Writes of up to 4 KiB that each has in hand: with two, one waits behind the other so that the link never does.
        writes: Figure<Count>,
        /// Least interval between two reads.
        read_interval: Figure<Duration>,
        /// Rate at which writes leave, headers not counted; as fast as the link takes them if not given.
        write_rate: Option<Figure<ByteRate>>,
        /// From a copy's command until the engine's first request.
        start: Figure<Duration>,
    }
}
