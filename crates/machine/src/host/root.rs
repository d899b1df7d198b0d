//! The root complex and its ports.

use crate::figure::Figure;
use crate::link::{CompletionBoundary, LinkGeneration, LinkWidth, PayloadLimit};
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use units::{ByteRate, Bytes, Duration};

names! {
    /// Order in which the root complex answers a function's reads.
    pub enum CompletionOrder {
        /// In order of the requests.
        InOrder = "in-order",
        /// In order of memory's responses.
        AsReady = "as-ready",
    }
}

record! {
    /// How the data of a read request are split into completions. Splits are at multiples of the maximum payload,
    /// regardless of the request's start.
    pub struct CompletionSplit {
        /// Maximum payload of a completion for requests of up to 64 bytes (bytes).
        tiny: Figure<Bytes>,
        /// Maximum payload for requests of up to `small_up_to` (bytes).
        small: Figure<Bytes>,
        /// Limit of small requests (bytes).
        small_up_to: Figure<Bytes>,
        /// Maximum payload for larger requests (bytes).
        large: Figure<Bytes>,
        /// Minimum size of very large requests (bytes); there are none if not given.
        largest_from: Option<Figure<Bytes>>,
        /// Maximum payload for very large requests (bytes); requires `largest_from`.
        largest: Option<Figure<Bytes>>,
        /// *Quirk*: an aligned request of an odd multiple of this size counts as very large (bytes); never if not
        /// given.
        odd_multiple_as_largest: Option<Figure<Bytes>>,
        /// Lines that arrive further apart are not combined.
        combine_window: Figure<Duration>,
        /// How long a port counts as busy after its last completion, so that requests are combined.
        busy_hold: Figure<Duration>,
        /// Whether the last full completion of a large request is split into lines.
        splits_last: Figure<bool>,
        /// Whether a partially requested line gets its own completion.
        splits_partial: Figure<bool>,
        /// Granularity of payload at its ends (bytes).
        granule: Figure<Bytes>,
    }
    check |split: &CompletionSplit, check: &mut Check<'_>| {
        let sizes = [("tiny", &split.tiny), ("small", &split.small), ("large", &split.large)];
        for (key, figure) in sizes.into_iter().chain(split.largest.iter().map(|figure| ("largest", figure))) {
            let bytes = figure.value.get();
            check.require(
                bytes.is_power_of_two() && (64..=4096).contains(&bytes),
                key,
                format!("a completion of {} is not allowed", figure.value),
                "64 B, 128 B, 256 B, .. 4096 B",
            );
        }
        check.require(
            split.largest.is_some() == split.largest_from.is_some(),
            if split.largest.is_some() { "largest" } else { "largest_from" },
            "only one of `largest` and `largest_from` is given",
            "both, or neither: no request is very large then",
        );
        check.require(
            split.odd_multiple_as_largest.is_none() || split.largest.is_some(),
            "odd_multiple_as_largest",
            "no request is very large here",
            "`largest` and `largest_from` beside it",
        );
        check.require_bytes("small_up_to", split.small_up_to.value, (Bytes::ZERO, Bytes::mib(1)));
        if let Some(from) = &split.largest_from {
            check.require(
                split.small_up_to.value < from.value,
                "largest_from",
                format!("{} are small already", from.value),
                format!("more than `small_up_to` ({})", split.small_up_to.value),
            );
            check.require_bytes("largest_from", from.value, (Bytes::ZERO, Bytes::mib(1)));
        }
        if let Some(odd) = &split.odd_multiple_as_largest {
            check.require_bytes("odd_multiple_as_largest", odd.value, (Bytes::ZERO, Bytes::mib(1)));
        }
        let granule = split.granule.value.get();
        check.require(
            granule.is_power_of_two() && (4..=64).contains(&granule),
            "granule",
            format!("{} is not a unit of payload", split.granule.value),
            "4 B, 8 B, .. 64 B",
        );
    }
}

record! {
    /// Connects PCIe ports with caches and memory.
    pub struct RootComplex {
        /// How long a request occupies its port's intake.
        intake_per_request: Figure<Duration>,
        /// Additional time per cache line of a request.
        intake_per_line: Figure<Duration>,
        /// Time from a request's intake until its address lookup.
        request_latency: Figure<Duration>,
        /// Time to merge a partial line of a write; partial lines of one write wait for each other.
        partial_line: Figure<Duration>,
        /// Delay of a request while another one to the same line is in progress.
        same_line_wait: Figure<Duration>,
        /// Time from the arrival of a read's data until its completion can be sent.
        completion_latency: Figure<Duration>,
        /// Order in which reads are answered.
        completion_order: Figure<CompletionOrder>,
        /// How responses are split into completions.
        completion_split: CompletionSplit,
        /// Maximum cache lines of device writes in flight per stack of 16 lanes, from a request's arrival until a cache or the home's
        /// memory has accepted the line; limited by credits only if not given.
        stack_writes: Option<Figure<Count>>,
        /// Maximum cache lines of a port's strictly ordered writes that are on their way, from their lookup until the memory's home has
        /// ordered them, on hosts whose homes lie on several dies; as many as `stack_writes` and credits allow if not given. Writes
        /// with relaxed ordering are not bound by it.
        ordered_writes: Option<Figure<Count>>,
        /// The same for writes to devices below other root ports, or the pieces (`peer_write`) into which these are split, until they
        /// can be sent there.
        ordered_peer_writes: Option<Figure<Count>>,
        /// What the root ports of one quadrant of an I/O die can read from memory together, and write to it at the same time; limited
        /// by links alone if not given. Ports say their `quadrant`.
        quadrant_rate: Option<Figure<ByteRate>>,
        /// Time from the global ordering of a posted write until its receive buffer is free.
        posted_release_latency: Figure<Duration>,
        /// *Quirk*: additional wire bytes of a write with a 4 DW header (64-bit address), beyond the header's own 4;
        /// zero if not given. It was seen with the card of pcie-bench, and only that card pays it here.
        long_header_penalty: Option<Figure<Bytes>>,
        /// Time from a core's access leaving its socket's mesh or ring until its TLP can be sent.
        outbound_latency: Figure<Duration>,
        /// Time from granting a core's combined line an entry in the port until the core knows and its buffer is
        /// free.
        outbound_accept: Figure<Duration>,
        /// The same for an uncached store; the core's next store to a device waits for it.
        uncached_accept: Figure<Duration>,
        /// Entries of a port for posted writes of cores, until these have been sent.
        posted_places: Figure<Count>,
        /// Time from the arrival of a core's completion until the core has the data.
        inbound_completion_latency: Figure<Duration>,
        /// Whether root ports have access control services; false if not given.
        access_control: Option<Figure<bool>>,
        /// Whether root ports forward to functions beyond the eighth of a device (ARI); true if not given.
        ari_forwarding: Option<Figure<bool>>,
        /// Whether root ports can take their link down after an error below (downstream port containment); false if not given.
        containment: Option<Figure<bool>>,
        /// Whether root ports take reports of the latency that devices tolerate (LTR); false if not given.
        latency_reports: Option<Figure<bool>>,
        /// Whether a request for a device below the port from which it came is sent back there, as required if a
        /// switch's access control redirects it; rejected if not given.
        reflects_peers: Option<Figure<bool>>,
        /// Maximum size of the reads into which the root complex splits a device's read of a peer (bytes); not split
        /// if 0 or not given.
        peer_read: Option<Figure<Bytes>>,
        /// Maximum outstanding reads of this kind; 32 if not given (assumed: like a device without extended tags).
        peer_reads: Option<Figure<Count>>,
        /// Time from the lookup of a TLP for a peer until it can be sent there; as `outbound_latency` if not given.
        peer_latency: Option<Figure<Duration>>,
        /// Maximum size of the writes into which the root complex splits a device's write to a peer (bytes); not
        /// split if 0 or not given.
        peer_write: Option<Figure<Bytes>>,
        /// Minimum interval between such writes; zero if not given.
        peer_write_interval: Option<Figure<Duration>>,
        /// Completion timeout of ports for core accesses; 50 ms if not given (PCIe Base Specification 6.0, 7.5.3.16:
        /// 50 us to 50 ms by default).
        completion_timeout: Option<Figure<Duration>>,
    }
    check |root: &RootComplex, check: &mut Check<'_>| {
        let places = u64::from(root.posted_places.value.get());
        check.require_within("posted_places", places, (1, 4096), "places are too many");
        if let Some(writes) = &root.stack_writes {
            check.require_within("stack_writes", writes.value.get().into(), (1, 4096), "places are not possible");
        }
        for (key, writes) in [("ordered_writes", &root.ordered_writes), ("ordered_peer_writes", &root.ordered_peer_writes)] {
            let places = writes.as_ref().map_or(1, |places| places.value.get());
            check.require_within(key, places.into(), (1, 4096), "places are not possible");
        }
        check.require_completion_timeout(root.completion_timeout.as_ref());
        if let Some(penalty) = &root.long_header_penalty {
            check.require_bytes("long_header_penalty", penalty.value, (Bytes::ZERO, Bytes::kib(1)));
        }
        for (key, what, largest) in [("peer_read", "reads", &root.peer_read), ("peer_write", "writes", &root.peer_write)] {
            let largest = largest.as_ref().map_or(64, |largest| largest.value.get());
            check.require(
                largest == 0 || largest.is_power_of_two() && (64..=4096).contains(&largest),
                key,
                format!("{what} of {largest} B are not possible"),
                "a power of two from 64 B to 4 KiB, or 0 if they are not cut",
            );
        }
        let peers = root.peer_reads.as_ref().map_or(32, |places| places.value.get());
        check.require_within("peer_reads", peers.into(), (1, 128), "reads cannot be told apart");
    }
}

record! {
    /// Advertised receive buffer space: headers, and payload in units of 16 bytes.
    pub struct Credits {
        /// Posted request headers.
        ph: Figure<u32>,
        /// Posted request payload.
        pd: Figure<u32>,
        /// Non-posted request headers.
        nph: Figure<u32>,
        /// Non-posted request payload.
        npd: Figure<u32>,
        /// Completion headers; 0 is infinite.
        cplh: Figure<u32>,
        /// Completion payload; 0 is infinite.
        cpld: Figure<u32>,
    }
}

record! {
    /// A root port and its slot, as configured by firmware.
    pub struct RootPort {
        /// The slot of the same machine whose figures are this one's as far as it gives none, such as `slot`.
        extends: Option<String>,
        /// The port's socket, counted from 0.
        socket: Figure<u32>,
        /// The quadrant of its socket's I/O die that it belongs to, counted from 0; `quadrant_rate` of the root complex limits what such
        /// ports have together. None if not given.
        quadrant: Option<Figure<u32>>,
        /// Number of identical slots, each with its own port: the first has this table's name, the others `NAME.1`
        /// and so on; 1 if not given. With 0, a machine lacks a slot of the machine that it extends.
        slots: Option<Figure<u32>>,
        /// The port's maximum generation.
        generation: Figure<LinkGeneration>,
        /// The port's number of lanes.
        width: Figure<LinkWidth>,
        /// Max_Payload_Size (bytes).
        mps_bytes: Figure<PayloadLimit>,
        /// Max_Read_Request_Size of functions in the slot (bytes).
        mrrs_bytes: Figure<PayloadLimit>,
        /// Read completion boundary (bytes).
        rcb_bytes: Figure<CompletionBoundary>,
        /// Width of the port's transmitter: each TLP takes whole units of it on the link. 16 B if not given (fitted: Xeon E5 and E3 send
        /// 288 bytes for a completion of 256).
        transmit_width: Option<Figure<Bytes>>,
        /// Receive buffer space that the port advertises.
        credits: Credits,
        /// Time from the last symbol of a TLP leaving one end until the other end has it.
        link_latency: Figure<Duration>,
        /// How long a TLP's acknowledgement waits for others.
        ack_delay: Figure<Duration>,
        /// How long freed buffer space waits for more before it is advertised.
        credit_update_delay: Figure<Duration>,
        /// Capacity of the replay buffer of each end, in TLPs.
        replay_tlps: Figure<Count>,
        /// Time from the link entering recovery until it carries TLPs again; 10 us if not given (assumed: some
        /// microseconds to lock on training sequences; the specification limits each step to milliseconds, PCIe Base
        /// Specification 6.0, 4.2.7.4).
        retrain_time: Option<Figure<Duration>>,
    }
    check check_port
}

impl RootPort {
    /// Number of slots of this kind.
    pub fn count(&self) -> u32 {
        self.slots.as_ref().map_or(1, |slots| slots.value)
    }
}

impl Credits {
    /// Each kind of credits by its key, with the most that the flow control of `generation` can express: scaled flow control requires
    /// 16 GT/s (PCIe Base Specification 6.0, 3.4.2).
    pub fn with_limits(&self, generation: u32) -> [(&'static str, &Figure<u32>, u32); 6] {
        let (headers, data) = if generation >= 4 { (2032, 32_752) } else { (127, 2047) };
        [
            ("ph", &self.ph, headers),
            ("pd", &self.pd, data),
            ("nph", &self.nph, headers),
            ("npd", &self.npd, data),
            ("cplh", &self.cplh, headers),
            ("cpld", &self.cpld, data),
        ]
    }

    /// Reports credits that the flow control of `generation` cannot express.
    pub(crate) fn check_expressible(&self, generation: u32, check: &mut Check<'_>) {
        let check = &mut check.at("credits");
        for (key, figure, most) in self.with_limits(generation) {
            check.require(
                figure.value <= most,
                key,
                format!("a port of generation {generation} cannot advertise {} credits", figure.value),
                format!("at most {most}"),
            );
        }
    }
}

impl Credits {
    /// Reports credits with which the link could not carry anything: there must be room for one TLP of maximum
    /// payload (PCIe Base Specification 6.0, 2.6.1).
    pub(crate) fn check_room(&self, payload: PayloadLimit, check: &mut Check<'_>) {
        let (credits, least) = (self, payload.get() / 16);
        let check = &mut check.at("credits");
        check.require(
            credits.pd.value >= least,
            "pd",
            format!("{} credits do not hold a payload of {}", credits.pd.value, payload),
            format!("at least {least} (`mps_bytes` / 16)"),
        );
        check.require(
            credits.cpld.value == 0 || credits.cpld.value >= least,
            "cpld",
            format!("{} credits do not hold a payload of {}", credits.cpld.value, payload),
            format!("0 (infinite) or at least {least} (`mps_bytes` / 16)"),
        );
        for (key, figure) in [("ph", &credits.ph), ("nph", &credits.nph), ("npd", &credits.npd)] {
            check.require(figure.value >= 1, key, "no request of this kind could ever be sent", "at least 1");
        }
    }
}

fn check_port(port: &RootPort, check: &mut Check<'_>) {
    let quadrant = port.quadrant.as_ref().map_or(0, |quadrant| quadrant.value);
    check.require_within("quadrant", quadrant.into(), (0, 15), "are no quadrants of a die");
    check.require_within("slots", port.count().into(), (1, 32), "slots are not possible");
    let width = port.transmit_width.as_ref().map_or(16, |width| width.value.get());
    check.require(
        width.is_power_of_two() && width <= 64,
        "transmit_width",
        format!("{width} B is no width of a data path"),
        "a power of two from 1 B to 64 B",
    );
    port.credits.check_expressible(port.generation.value.get(), check);
    port.credits.check_room(port.mps_bytes.value, check);
    check.require_within(
        "replay_tlps",
        port.replay_tlps.value.get().into(),
        (1, 2048),
        "TLPs cannot be told apart",
    );
}

impl RootComplex {
    /// Additional wire bytes of a write with a 4 DW header.
    pub fn long_header_bytes(&self) -> u64 {
        self.long_header_penalty.as_ref().map_or(0, |penalty| penalty.value.get())
    }
}
