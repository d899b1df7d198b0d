//! Parameters of a link.

use std::iter::Sum;
use std::ops::{Add, AddAssign, SubAssign};

use units::Duration;
use wire::pcie::FlowClass;
use wire::pcie::dllp::Scale;
use wire::pcie::link::{Generation, Width};

/// A link between two ports.
#[derive(Clone, Debug)]
pub struct LinkParams {
    /// Negotiated generation.
    pub generation: Generation,
    /// Negotiated width.
    pub width: Width,
    /// From the last symbol of a TLP leaving the transmitter until the receiver's transaction layer has it: serdes,
    /// elastic buffer, CRC check, wire.
    pub latency: Duration,
    /// Width of each port's transmitter in bytes, a power of two: a TLP takes whole beats.
    /// `[upstream end, downstream end]`.
    pub beats: [u32; 2],
    /// The two ports as receivers: `[upstream end, downstream end]`; upstream is nearer to the root.
    pub receivers: [ReceiverParams; 2],
    /// Recovery time of a retraining.
    pub retrain_time: Duration,
}

impl LinkParams {
    /// A plain link with infinite credits, for tests.
    pub fn example(generation: Generation, width: Width) -> Self {
        let receiver = ReceiverParams {
            credits: CreditLimits::default(),
            ack_delay: Duration::from_ns(50),
            credit_update_delay: Duration::from_ns(30),
            replay_tlps: 64,
            cut_through: false,
        };
        Self {
            generation,
            width,
            latency: Duration::from_ns(60),
            beats: [1, 1],
            receivers: [receiver.clone(), receiver],
            retrain_time: Duration::from_us(1),
        }
    }
}

/// A port as the receiver of TLPs.
#[derive(Clone, Debug)]
pub struct ReceiverParams {
    /// Buffer space advertised for each class.
    pub credits: CreditLimits,
    /// How long the first unacknowledged TLP waits for more before an Ack is sent.
    pub ack_delay: Duration,
    /// How long freed buffer space waits for more before an UpdateFC is sent.
    pub credit_update_delay: Duration,
    /// TLPs that the other end's transmitter can keep for replay.
    pub replay_tlps: usize,
    /// Whether the receiver forwards a TLP before its end has arrived.
    pub cut_through: bool,
}

/// Buffer space in credits: one header, 16 bytes of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Header credits, one for each TLP.
    pub header: u32,
    /// Data credits: 16-byte units of payload.
    pub data: u32,
}

impl AddAssign for Credits {
    #[inline]
    fn add_assign(&mut self, more: Self) {
        self.header += more.header;
        self.data += more.data;
    }
}

impl SubAssign for Credits {
    #[inline]
    fn sub_assign(&mut self, less: Self) {
        self.header -= less.header;
        self.data -= less.data;
    }
}

impl Add for Credits {
    type Output = Self;

    fn add(mut self, more: Self) -> Self {
        self += more;
        self
    }
}

impl Sum for Credits {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Credits that a receiver advertises at initialisation; `None` is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditLimits {
    /// Posted requests (`ph`, `pd`).
    pub posted: Option<Credits>,
    /// Non-posted requests (`nph`, `npd`).
    pub non_posted: Option<Credits>,
    /// Completions (`cplh`, `cpld`).
    pub completion: Option<Credits>,
}

impl CreditLimits {
    /// The part of the limits that a port can advertise on a link of `generation`. Scaled flow control exists from 16
    /// GT/s on; credits between two steps of a scale are withheld (base spec 3.4.2).
    pub fn expressible(self, generation: Generation) -> Self {
        let scaled = generation >= Generation::Gen4;
        let whole = |credits: u32, most: u32, scale: Option<Scale>| {
            let shift = scale.filter(|_| scaled).map_or(0, Scale::shift);
            credits.min(most) >> shift << shift
        };
        let (headers, data) = if scaled { (2032, 32752) } else { (127, 2047) };
        let limit = |credits: Credits| Credits {
            header: whole(credits.header, headers, Scale::for_headers(credits.header.min(headers))),
            data: whole(credits.data, data, Scale::for_data(credits.data.min(data))),
        };
        Self {
            posted: self.posted.map(limit),
            non_posted: self.non_posted.map(limit),
            completion: self.completion.map(limit),
        }
    }

    /// The limit of `class`; `None` is infinite.
    pub fn of(&self, class: FlowClass) -> Option<Credits> {
        match class {
            FlowClass::Posted => self.posted,
            FlowClass::NonPosted => self.non_posted,
            FlowClass::Completion => self.completion,
        }
    }
}
