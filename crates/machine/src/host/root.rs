//! The root complex and its ports.

use crate::figure::Figure;
use crate::link::{CompletionBoundary, LinkGeneration, LinkWidth, PayloadLimit};
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use units::{Bytes, Duration};

names! {
    /// In which order the root complex answers a function's reads.
    pub enum CompletionOrder {
        /// In the order of the requests.
        InOrder = "in-order",
        /// As memory answers.
        AsReady = "as-ready",
    }
}

record! {
    /// How the data of one read request is cut into completions. Cuts lie at
    /// multiples of the largest payload, whatever the request's start.
    pub struct CompletionSplit {
        /// Most payload of a completion of a request of up to 64 bytes (bytes).
        tiny: Figure<Bytes>,
        /// The same for requests of up to `small_up_to` (bytes).
        small: Figure<Bytes>,
        /// Up to where requests are small (bytes).
        small_up_to: Figure<Bytes>,
        /// Most payload for larger requests (bytes).
        large: Figure<Bytes>,
        /// From where requests are very large (bytes); none are unless given.
        largest_from: Option<Figure<Bytes>>,
        /// Most payload for those (bytes); goes with `largest_from`.
        largest: Option<Figure<Bytes>>,
        /// *Quirk*: an aligned request of an odd number of this many bytes is treated as a very large one (bytes); none is
        /// unless given.
        odd_multiple_as_largest: Option<Figure<Bytes>>,
        /// Lines that arrive further apart than this are not combined.
        combine_window: Figure<Duration>,
        /// For how long after its last completion a port still counts as busy, so that requests are combined.
        busy_hold: Figure<Duration>,
        /// Whether the last full completion of a large request goes line by line.
        splits_last: Figure<bool>,
        /// Whether a line of which only a part was asked for goes by itself.
        splits_partial: Figure<bool>,
        /// Units in which payload is cut at its ends (bytes).
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
            format!("{} is no unit of payload", split.granule.value),
            "4 B, 8 B, .. 64 B",
        );
    }
}

record! {
    /// What joins PCIe ports with caches and memory.
    pub struct RootComplex {
        /// For how long a request occupies its port's intake.
        intake_per_request: Figure<Duration>,
        /// For how long each cache line of a request occupies it, on top.
        intake_per_line: Figure<Duration>,
        /// From a request's intake until its address is looked up.
        request_latency: Figure<Duration>,
        /// Least interval between lookups of the lines of one request.
        line_interval: Figure<Duration>,
        /// What merging a partial line of a write takes before it goes on as a line; the partial lines of one write
        /// wait for each other.
        partial_line: Figure<Duration>,
        /// What a request waits that finds another of the same line under way.
        same_line_wait: Figure<Duration>,
        /// From a read's data being there until its completion can go on the wire.
        completion_latency: Figure<Duration>,
        /// In which order reads are answered.
        completion_order: Figure<CompletionOrder>,
        /// How answers are cut into completions.
        completion_split: CompletionSplit,
        /// Lines of devices' writes that a stack of 16 lanes has under way at once, from a request's arrival until a cache or memory
        /// has taken them; as many as credits allow if not given.
        stack_writes: Option<Figure<Count>>,
        /// From a posted write being globally ordered until its receive buffer is free.
        posted_release_latency: Figure<Duration>,
        /// *Quirk*: wire bytes that a write with a 4 DW header (address of 64 bits) takes beyond the header's own 4; none
        /// unless given.
        long_header_penalty: Option<Figure<Bytes>>,
        /// From a core's access leaving its socket's mesh or ring until its TLP can go on the wire.
        outbound_latency: Figure<Duration>,
        /// From a core's combined line being granted a place in the port until the core knows, and its buffer is free.
        outbound_accept: Figure<Duration>,
        /// The same for an uncached store, for which the core's next store to a device waits.
        uncached_accept: Figure<Duration>,
        /// Posted writes of cores that a port has places for, until they have left on the wire.
        posted_places: Figure<Count>,
        /// From a core's completion arriving until the core has the data.
        inbound_completion_latency: Figure<Duration>,
        /// Whether root ports have access control services; none if not given.
        access_control: Option<Figure<bool>>,
        /// Whether a request for what is below the port by which it came goes back there, as it must where a switch's access
        /// control sends it up; it is refused if not given.
        reflects_peers: Option<Figure<bool>>,
        /// Most bytes of the reads into which the root complex cuts a device's read from another one (bytes); it goes on as it is if
        /// not given, or 0.
        peer_read: Option<Figure<Bytes>>,
        /// Such reads under way at once; 32 if not given (assumed: as many as a device's that knows no extended tags).
        peer_reads: Option<Figure<Count>>,
        /// From a TLP of a device for another one being looked up until it can go on the wire there; as `outbound_latency` if not given.
        peer_latency: Option<Figure<Duration>>,
        /// Most bytes of the writes into which the root complex cuts a device's write to another one (bytes); it goes on as it is if
        /// not given, or 0.
        peer_write: Option<Figure<Bytes>>,
        /// Least interval between two writes to peers, each of such a piece; none if not given.
        peer_write_interval: Option<Figure<Duration>>,
        /// How long ports wait for the completion of a core's access; 50 ms unless given (PCIe Base Specification 6.0,
        /// 7.5.3.16: 50 us to 50 ms where the registers leave it to the port).
        completion_timeout: Option<Figure<Duration>>,
    }
    check |root: &RootComplex, check: &mut Check<'_>| {
        let places = u64::from(root.posted_places.value.get());
        check.require_within("posted_places", places, (1, 4096), "places are too many");
        if let Some(writes) = &root.stack_writes {
            check.require_within("stack_writes", writes.value.get().into(), (1, 4096), "places are not possible");
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
    /// Receive buffer space that a port advertises: headers, and payload in units of 16 bytes.
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
    /// A root port with the slot behind it, as firmware set it up.
    pub struct RootPort {
        /// The socket that the port belongs to, counted from 0.
        socket: Figure<u32>,
        /// Slots like this one, each with a port of its own: the first is called as this table, the others `NAME.1` and so on;
        /// one if not given.
        slots: Option<Figure<Count>>,
        /// The port's highest generation.
        generation: Figure<LinkGeneration>,
        /// The port's lanes.
        width: Figure<LinkWidth>,
        /// Max_Payload_Size (bytes).
        mps_bytes: Figure<PayloadLimit>,
        /// Max_Read_Request_Size to which functions in the slot are set (bytes).
        mrrs_bytes: Figure<PayloadLimit>,
        /// Read completion boundary (bytes).
        rcb_bytes: Figure<CompletionBoundary>,
        /// Buffer space that the port advertises.
        credits: Credits,
        /// From the last symbol of a TLP leaving one end to the other end having it.
        link_latency: Figure<Duration>,
        /// For how long a TLP waits for others to be acknowledged with it.
        ack_delay: Figure<Duration>,
        /// For how long freed buffer space waits for more before it is advertised.
        credit_update_delay: Figure<Duration>,
        /// TLPs that each end may keep for replay.
        replay_tlps: Figure<Count>,
        /// From the link's going into recovery until it carries TLPs again; 10 us unless given (assumed: some
        /// microseconds to lock on training sequences again; the specification limits each step to milliseconds, PCIe Base
        /// Specification 6.0, 4.2.7.4).
        retrain_time: Option<Figure<Duration>>,
    }
    check check_port
}

impl RootPort {
    /// Slots of this kind.
    pub fn count(&self) -> u32 {
        self.slots.as_ref().map_or(1, |slots| slots.value.get())
    }
}

impl Credits {
    /// Complains of credits that flow control of `generation` cannot express: scaled flow control came with 16 GT/s
    /// (PCIe Base Specification 6.0, 3.4.2).
    pub(crate) fn check_expressible(&self, generation: u32, check: &mut Check<'_>) {
        let (headers, data) = if generation >= 4 { (2032, 32_752) } else { (127, 2047) };
        let check = &mut check.at("credits");
        for (key, figure, most) in [
            ("ph", &self.ph, headers),
            ("pd", &self.pd, data),
            ("nph", &self.nph, headers),
            ("npd", &self.npd, data),
            ("cplh", &self.cplh, headers),
            ("cpld", &self.cpld, data),
        ] {
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
    /// Complains of credits with which a link could carry nothing: there must be room for one TLP of the largest payload (PCIe Base
    /// Specification 6.0, 2.6.1).
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
    check.require_within("slots", port.count().into(), (1, 32), "slots are not possible");
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
    /// Wire bytes that a write with a 4 DW header takes beyond the header's own.
    pub fn long_header_bytes(&self) -> u64 {
        self.long_header_penalty.as_ref().map_or(0, |penalty| penalty.value.get())
    }
}
