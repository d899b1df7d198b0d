//! The file of a GPU.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{ByteRate, Bytes, Duration};

record! {
    /// A GPU as its file describes it.
    pub struct Gpu {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The GPU file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Capability of its port.
        link: LinkCapability,
        /// Work submission, and its programs' access to memory.
        controller: GpuController,
        /// What copies between its memory, host memory and peers.
        copy_engine: GpuCopyEngine,
    }
    check |gpu: &Gpu, check: &mut Check<'_>| {
        let (memory, aperture) = (gpu.controller.memory.value, gpu.controller.aperture.value);
        let mut within = check.at("controller");
        within.require_pci_id(&gpu.controller.pci_id.value);
        within.require(
            memory.get() % (1 << 20) == 0 && (1 << 20..=1 << 40).contains(&memory.get()),
            "memory",
            format!("{memory} of memory are not possible"),
            "whole MiB, up to 1 TiB",
        );
        within.require(
            aperture.get().is_power_of_two() && (1 << 20..=1 << 40).contains(&aperture.get()),
            "aperture",
            format!("{aperture} is not a size of a BAR"),
            "a power of two from 1 MiB to 1 TiB",
        );
        if let Some(most) = &gpu.controller.aperture_most {
            let bytes = most.value.get();
            within.require(
                bytes.is_power_of_two() && (aperture.get()..=1 << 40).contains(&bytes),
                "aperture_most",
                format!("{} is not a size of a BAR of at least {aperture}", most.value),
                "a power of two from `aperture` to 1 TiB",
            );
        }
        within.require(
            !gpu.controller.poll_interval.value.is_zero() && !gpu.controller.acquire_interval.value.is_zero(),
            "poll_interval",
            "who looks without pause never gets anywhere",
            "such as `100 ns`, and as much for `acquire_interval`",
        );
        let tolerance = gpu.controller.clock_tolerance_ppm.value.get().into();
        within.require_within("clock_tolerance_ppm", tolerance, (1, 10_000), "ppm are no oscillator's");
        let entries = gpu.controller.fetch_entries.value.get().into();
        within.require_within("fetch_entries", entries, (1, 512), "entries are not possible");
        let engine = &gpu.copy_engine;
        let mut within = check.at("copy_engine");
        within.require_within("count", engine.count.value.get().into(), (1, 16), "copy engines are not possible");
        let what = "reads of an engine cannot be told apart by the link's `tag_bits`";
        within.require_within("tags", engine.tags.value.get().into(), (1, gpu.link_tags().into()), what);
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

/// Tags for fetching commands, which copies leave free.
pub const GPU_OTHER_TAGS: u32 = 16;

impl Gpu {
    /// What the link has for copies.
    fn link_tags(&self) -> u32 {
        self.link.tag_bits.value.tags().saturating_sub(GPU_OTHER_TAGS)
    }

    /// Tags of all copy engines together.
    pub fn copy_tags(&self) -> u32 {
        let engine = &self.copy_engine;
        self.link_tags().min(engine.tags.value.get() * engine.count.value.get())
    }
}

impl Kindred for Gpu {
    const WORD: &'static str = "gpu";
    const WHAT: &'static str = "GPU";
    const FOLDER: &'static str = "machines/gpus";
    const ABOUT: &'static str = "A GPU.";

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// Work submission, and the programs' access to memory.
    pub struct GpuController {
        /// PCI vendor and device number, such as `10de:0ff3`.
        pci_id: Figure<String>,
        /// Whether it supports MSI besides its legacy interrupt; true if not given.
        message: Option<Figure<bool>>,
        /// Size of its memory (bytes).
        memory: Figure<Bytes>,
        /// Size of the part, from its start, that cores and peers can access (bytes).
        aperture: Figure<Bytes>,
        /// Largest size to which the aperture can be resized, a power of two (bytes); it cannot be resized if not given.
        aperture_most: Option<Figure<Bytes>>,
        /// Data rate of copies within its memory.
        memory_rate: Figure<ByteRate>,
        /// Latency of a register read, or of a read of its memory from outside.
        register_read: Figure<Duration>,
        /// Time for an engine to decode a command.
        command: Figure<Duration>,
        /// Entries of a channel's ring, of 8 B each, per fetch.
        fetch_entries: Figure<Count>,
        /// Time from the selection of a channel until its engine has its state and starts to fetch commands.
        channel_load: Figure<Duration>,
        /// Polling interval of a semaphore that a channel waits for.
        acquire_interval: Figure<Duration>,
        /// How far its clock may be from what its file says (parts per million): each board has an oscillator of its
        /// own.
        clock_tolerance_ppm: Figure<Count>,
        /// Time from a launch command until the kernel's first instruction.
        launch: Figure<Duration>,
        /// Time from a kernel's load until its request is at the link, and from the response there back to the
        /// kernel.
        access: Figure<Duration>,
        /// Time from a kernel's store until its write is at the link.
        store: Figure<Duration>,
        /// Latency of a kernel's load from the GPU's own memory.
        local_load: Figure<Duration>,
        /// Time from the arrival of an external write at the link until kernels see it in memory.
        incoming: Figure<Duration>,
        /// Polling interval of a kernel in the GPU's own memory; polls overlap. Polls across the bus wait for the
        /// previous response.
        poll_interval: Figure<Duration>,
    }
}

record! {
    /// Copy engines: how many, and how each reads and writes over the link.
    pub struct GpuCopyEngine {
        /// Number of copy engines.
        count: Figure<Count>,
        /// Maximum outstanding reads per engine.
        tags: Figure<Count>,
        /// Size of a read (bytes).
        read_request: Figure<Bytes>,
        /// Concurrent writes of up to 4 KiB per engine: with two, the link never idles.
        writes: Figure<Count>,
        /// Minimum interval between two reads.
        read_interval: Figure<Duration>,
        /// Data rate of outgoing writes, without headers; limited only by the link if not given.
        write_rate: Option<Figure<ByteRate>>,
        /// Time from a copy command until the engine's first request.
        start: Figure<Duration>,
    }
}
