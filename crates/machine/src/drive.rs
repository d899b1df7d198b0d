//! The file of an NVMe drive: controller and media.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{ByteRate, Bytes, Duration};

record! {
    /// An NVMe drive as its file describes it.
    pub struct Drive {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The drive file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Capability of each of its ports.
        link: LinkCapability,
        /// Queues, limits and latencies of the controller behind each port.
        controller: DriveController,
        /// Dies, channels and write buffer, which all controllers share.
        media: DriveMedia,
    }
    check |drive: &Drive, check: &mut Check<'_>| {
        check.at("controller").require_pci_id(&drive.controller.pci_id.value);
        let unit = drive.media.unit.value.get();
        check.at("media").require(
            unit.is_power_of_two() && (512..=1 << 20).contains(&unit),
            "unit",
            format!("{} is not a stripe unit", drive.media.unit.value),
            "a power of two from 512 B to 1 MiB",
        );
        check.at("controller").require(
            drive.controller.block.value.get() == 512 || drive.controller.block.value.get() == 4096,
            "block",
            format!("blocks of {} are not supported", drive.controller.block.value),
            "512 B or 4096 B",
        );
        if let Some(flash) = &drive.media.flash {
            check.at("media").at("flash").require(
                flash.raw.value.get() > drive.controller.capacity.value.get(),
                "raw",
                "the namespace would leave no flash to move pages to",
                "more than `controller.capacity`",
            );
            check.at("media").at("flash").require(
                (2 * unit..=1 << 30).contains(&flash.block.value.get()),
                "block",
                format!("{} is not a block size", flash.block.value),
                "from two units to 1 GiB",
            );
        }
        let controller = &drive.controller;
        let mut within = check.at("controller");
        for (key, count, limits, what) in [
            ("ports", &controller.ports, (1, 4), "ports are not possible"),
            // One interrupt per queue and one more, of the 2048 of MSI-X (PCIe Base Specification 6.0, 7.7.2).
            ("queue_pairs", &controller.queue_pairs, (1, 2047), "queue pairs are not possible"),
            ("queue_entries", &controller.queue_entries, (3, 65_536), "entries are not possible"),
            ("tags", &controller.tags, (1, drive.link.tag_bits.value.tags().into()), "cannot be told apart by the link's `tag_bits`"),
            ("fetches", &controller.fetches, (1, 255), "fetches are not possible"),
            ("commands_in_hand", &controller.commands_in_hand, (1, 65_535), "commands are not possible"),
        ] {
            within.require_within(key, count.value.get().into(), limits, what);
        }
        let transfer = controller.max_transfer.value.get();
        within.require(
            transfer.is_power_of_two() && (4096..=1 << 30).contains(&transfer),
            "max_transfer",
            "a controller says it as a power of two of pages",
            "a power of two from 4 KiB to 1 GiB",
        );
        let capacity = controller.capacity.value.get();
        within.require(
            capacity > 0 && capacity % controller.block.value.get().max(1) == 0,
            "capacity",
            "a drive consists of whole blocks",
            format!("a multiple of {}", controller.block.value),
        );
        for (key, count) in [("channels", &drive.media.channels), ("dies_per_channel", &drive.media.dies_per_channel)] {
            check.at("media").require_within(key, count.value.get().into(), (1, 1024), "are not possible");
        }
        let buffer = drive.controller.memory_buffer.as_ref().map_or(4096, |buffer| buffer.value.get());
        check.at("controller").require(
            buffer.is_power_of_two() && (4096..=1 << 30).contains(&buffer),
            "memory_buffer",
            "that is not a size of a controller memory buffer",
            "a power of two from 4 KiB to 1 GiB; without the key there is none",
        );
    }
}

impl Kindred for Drive {
    const WORD: &'static str = "drive";
    const FOLDER: &'static str = "machines/drives";
    const ABOUT: &'static str = "An NVMe drive.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["optane-p4800x", "controller.tags = { value = 64, source = \"datasheet: ...\" }"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// An NVMe controller.
    pub struct DriveController {
        /// PCI vendor and device number, such as `8086:2700`.
        pci_id: Figure<String>,
        /// Ports, each with a controller of its own; all share the namespaces.
        ports: Figure<Count>,
        /// Maximum number of I/O queue pairs.
        queue_pairs: Figure<Count>,
        /// Maximum number of entries per queue.
        queue_entries: Figure<Count>,
        /// Maximum transfer size of a command (bytes).
        max_transfer: Figure<Bytes>,
        /// Block size as delivered (bytes).
        block: Figure<Bytes>,
        /// Size of the namespace as delivered (bytes).
        capacity: Figure<Bytes>,
        /// Whether the write buffer loses its content without power.
        volatile_write_cache: Figure<bool>,
        /// Size of the controller memory buffer (bytes); none if not given.
        memory_buffer: Option<Figure<Bytes>>,
        /// Maximum outstanding reads on the link.
        tags: Figure<Count>,
        /// Maximum concurrent commands.
        commands_in_hand: Figure<Count>,
        /// Latency of a register read.
        register_read: Figure<Duration>,
        /// Time from a doorbell until entries are fetched.
        fetch: Figure<Duration>,
        /// Maximum concurrent fetches, of different queues.
        fetches: Figure<Count>,
        /// Time from an entry's arrival until its command starts.
        decode: Figure<Duration>,
        /// Minimum interval between the starts of two commands.
        command_interval: Figure<Duration>,
        /// Time from the end of a command until its completion entry is sent.
        completion: Figure<Duration>,
        /// Data rate between link and media, both directions together.
        data_path: Figure<ByteRate>,
        /// Time from enable until ready.
        enable: Figure<Duration>,
    }
}

record! {
    /// Media: dies behind channels.
    pub struct DriveMedia {
        /// Number of channels.
        channels: Figure<Count>,
        /// Dies of each channel.
        dies_per_channel: Figure<Count>,
        /// Stripe unit: consecutive bytes on a die.
        unit: Figure<Bytes>,
        /// Time from a request to a die until a unit's data can be transferred.
        read: Figure<Duration>,
        /// Time from the arrival of a unit's data at a die until it is stored.
        program: Figure<Duration>,
        /// Data rate of a channel.
        channel_rate: Figure<ByteRate>,
        /// Data rate of a channel for writes; as `channel_rate` if not given.
        channel_write_rate: Option<Figure<ByteRate>>,
        /// Maximum bytes of writes that are acknowledged before they are stored; 0 for write-through.
        write_buffer: Figure<Bytes>,
        /// Flash, which must be erased before it is written; media that can be overwritten in place if not given.
        flash: Option<DriveFlash>,
    }
}

record! {
    /// Flash: pages are written once, blocks are erased as a whole.
    pub struct DriveFlash {
        /// Total capacity of all dies, including what the namespace cannot use (bytes).
        raw: Figure<Bytes>,
        /// Size of a block (bytes).
        block: Figure<Bytes>,
        /// Time to erase a block.
        erase: Figure<Duration>,
    }
}
