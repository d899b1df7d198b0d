//! Records of a link's packets, as from a protocol analyser.

use engine::Trace;
use units::Time;
use wire::pcie::dllp::{FlowControl, FlowControlKind, Scale};
use wire::pcie::{Dllp, FlowClass, Sequence};

use super::params::{CreditLimits, Credits};
use super::receiver;
use super::{LinkId, Side};

/// A packet on a link's wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Which link.
    pub link: LinkId,
    /// Transmitting side.
    pub from: Side,
    /// When its first symbol left the transmitter.
    pub at: Time,
    /// When the wire was free again.
    pub until: Time,
    /// Its bytes.
    pub packet: Packet,
}

/// A packet as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A TLP as received.
    Tlp {
        /// Its sequence number.
        sequence: Sequence,
        /// Header, data, digest.
        bytes: Box<[u8]>,
        /// Its LCRC; `None` without error injection, where it is correct and not computed.
        lcrc: Option<u32>,
    },
    /// A DLLP with its CRC.
    Dllp([u8; 6]),
}

/// Analyser probe on one link.
///
/// It also keeps the cumulative credits that flow control DLLPs carry; the link itself only counts free ones.
pub(super) struct Tap {
    trace: Trace<Passed>,
    link: LinkId,
    /// Advertised at initialisation, by advertising side and class; `None` is infinite.
    limits: [[Option<Credits>; 3]; 2],
    /// Granted since initialisation, by granting side and class; `None` is infinite.
    granted: [[Option<Credits>; 3]; 2],
    scales: [[(Scale, Scale); 3]; 2],
}

impl Tap {
    /// Creates a probe on `link`, whose receivers advertised `limits`.
    pub fn new(trace: Trace<Passed>, link: LinkId, limits: [&CreditLimits; 2]) -> Self {
        let limits = limits.map(|limits| FlowClass::ALL.map(|class| limits.of(class)));
        Self { trace, link, limits, granted: limits, scales: limits.map(|classes| classes.map(scales)) }
    }

    /// The link has trained again: totals restart from initialisation.
    pub fn begin_again(&mut self) {
        self.granted = self.limits;
    }

    /// The InitFC by which `from` advertises its buffer space.
    pub fn init(&self, from: Side, kind: FlowControlKind, class: FlowClass) -> FlowControl {
        let limit = self.limits[from as usize][class.index()].unwrap_or_default();
        let (headers, data) = self.scales[from as usize][class.index()];
        FlowControl {
            kind,
            ..FlowControl::update(class, limit.header.into(), headers, limit.data.into(), data)
        }
    }

    /// Records a TLP sent by `from`.
    pub fn tlp(
        &mut self,
        from: Side,
        (at, until): (Time, Time),
        sequence: u16,
        bytes: &[u8],
        lcrc: Option<u32>,
    ) {
        let link = self.link;
        self.trace.record(|| Passed {
            link,
            from,
            at,
            until,
            packet: Packet::Tlp { sequence: Sequence::new(sequence), bytes: bytes.into(), lcrc },
        });
    }

    /// Records a DLLP sent by `from`.
    pub fn dllp(&mut self, from: Side, (at, until): (Time, Time), dllp: Dllp) {
        let link = self.link;
        self.trace.record(|| Passed { link, from, at, until, packet: Packet::Dllp(dllp.to_bytes()) });
    }

    /// Records a DLLP that the receiver at `from` sends.
    pub fn receiver_dllp(&mut self, from: Side, span: (Time, Time), dllp: receiver::Dllp) {
        let dllp = match dllp {
            receiver::Dllp::Ack(sequence) => Dllp::Ack(Sequence::new(sequence)),
            receiver::Dllp::Nak(sequence) => Dllp::Nak(Sequence::new(sequence)),
            receiver::Dllp::UpdateCredits(class, credits) => self.update(from, class, credits),
        };
        self.dllp(from, span, dllp);
    }

    /// The UpdateFC by which `from` grants `credits` more.
    fn update(&mut self, from: Side, class: FlowClass, credits: Credits) -> Dllp {
        let total = self.granted[from as usize][class.index()].get_or_insert_default();
        total.header = total.header.wrapping_add(credits.header);
        total.data = total.data.wrapping_add(credits.data);
        let (headers, data) = self.scales[from as usize][class.index()];
        Dllp::FlowControl(FlowControl::update(
            class,
            u64::from(total.header),
            headers,
            u64::from(total.data),
            data,
        ))
    }
}

/// Scales of header and data credits: unscaled where sufficient, which every generation understands.
fn scales(limit: Option<Credits>) -> (Scale, Scale) {
    let Some(limit) = limit else { return Default::default() };
    if limit.header <= 127 && limit.data <= 2047 {
        return (Scale::None, Scale::None);
    }
    let headers = Scale::for_headers(limit.header).unwrap_or(Scale::By16);
    (headers, Scale::for_data(limit.data).unwrap_or(Scale::By16))
}
