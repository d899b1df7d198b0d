//! What is recorded, and what was.

use hardware::link::{LinkId, Passed};
use units::Duration;
use wire::pcie::{Generation, Width};

use super::doorbells::DoorbellBar;
use super::filter::Filter;

/// Where a recording ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// A time after the start of the observed program.
    Time(Duration),
    /// The first wait for credits, tags, a buffer or a place in a ring that lasts as long.
    Stall(Duration),
}

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Delay after the start of the observed program.
    pub from: Duration,
    /// End of the recording, if it is not that of the programs. Before a stall, the last packets are shown instead of the
    /// first.
    pub until: Option<Until>,
    /// Number of packets to show; 0 shows all.
    pub packets: usize,
    /// Types to show. Other packets are recorded too, for numbering and the summary.
    pub filter: Filter,
}

impl Span {
    /// The shortest wait that ends the recording.
    pub(super) fn stall(&self) -> Option<Duration> {
        match self.until {
            Some(Until::Stall(wait)) => Some(wait),
            Some(Until::Time(_)) | None => None,
        }
    }
}

/// A link whose packets were recorded.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    /// The link in the fabric.
    pub id: LinkId,
    /// Its name: the slot.
    pub name: String,
    /// Negotiated generation.
    pub generation: Generation,
    /// Negotiated width.
    pub width: Width,
}

/// Packets recorded on the tapped links.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The tapped links.
    pub links: Vec<LinkInfo>,
    /// The requested span.
    pub span: Span,
    /// Packets in the order in which they left their senders.
    pub packets: Vec<Passed>,
    /// Doorbells of the devices below each link.
    pub doorbells: Vec<(LinkId, DoorbellBar)>,
    /// Number of packets before the recording, and the time from the start to the last of them.
    pub early: Option<(usize, Duration)>,
}
