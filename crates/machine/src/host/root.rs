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
    /// How the data of one read request is cut into completions.
    pub struct CompletionSplit {
        /// The largest request for which `small` holds (bytes).
        small_up_to: Figure<Bytes>,
        /// Most payload of a completion for a small request (bytes).
        small: Figure<Bytes>,
        /// Most payload of a completion for any other request (bytes).
        large: Figure<Bytes>,
        /// Payload of each completion of a large request's last part (bytes).
        tail: Figure<Bytes>,
        /// How much of a large request's end is such a part (bytes); 0 for none.
        tail_bytes: Figure<Bytes>,
    }
    check |split: &CompletionSplit, check: &mut Check<'_>| {
        for (key, figure) in [("small", &split.small), ("large", &split.large), ("tail", &split.tail)] {
            let bytes = figure.value.get();
            check.require(
                bytes.is_power_of_two() && (64..=4096).contains(&bytes),
                key,
                format!("a completion of {} is not allowed", figure.value),
                "64 B, 128 B, 256 B, .. 4096 B",
            );
        }
    }
}

record! {
    /// What joins PCIe ports with caches and memory.
    pub struct RootComplex {
        /// From a request's arrival at the port until caches are asked.
        request_latency: Figure<Duration>,
        /// From data to a completion at the port.
        completion_latency: Figure<Duration>,
        /// For how long each request occupies the ingress.
        ingress_service: Figure<Duration>,
        /// For how long each completion occupies the egress.
        completion_service: Figure<Duration>,
        /// From a posted write's arrival until the caches have it.
        posted_latency: Figure<Duration>,
        /// For how long each line of a posted write occupies the ingress.
        posted_service: Figure<Duration>,
        /// In which order reads are answered.
        completion_order: Figure<CompletionOrder>,
        /// How answers are cut into completions.
        completion_split: CompletionSplit,
        /// Multiple to which a completion's payload is padded inside (bytes); 0 for no padding.
        completion_pad: Figure<Bytes>,
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
    }
    check check_port
}

fn check_port(port: &RootPort, check: &mut Check<'_>) {
    // A port must have room for one TLP of the largest payload (PCIe Base Specification 6.0, 2.6.1).
    let least = port.mps_bytes.value.get() / 16;
    let credits = &port.credits;
    let check = &mut check.at("credits");
    check.require(
        credits.pd.value >= least,
        "pd",
        format!("{} credits do not hold a payload of {}", credits.pd.value, port.mps_bytes.value),
        format!("at least {least} (`mps_bytes` / 16)"),
    );
    check.require(
        credits.cpld.value == 0 || credits.cpld.value >= least,
        "cpld",
        format!("{} credits do not hold a payload of {}", credits.cpld.value, port.mps_bytes.value),
        format!("0 (infinite) or at least {least} (`mps_bytes` / 16)"),
    );
    for (key, figure) in [("ph", &credits.ph), ("nph", &credits.nph), ("npd", &credits.npd)] {
        check.require(figure.value >= 1, key, "no request of this kind could ever be sent", "at least 1");
    }
}
