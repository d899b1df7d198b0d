//! Records packets from taps.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use engine::Trace;
use engine::trace::Sink;
use hardware::Fabric;
use hardware::link::{LinkId, Passed};
use units::Time;

use super::capture::{Capture, LinkInfo, Span, Until};
use super::timeline::Timeline;
use super::{Row, human, links};

/// Collects the packets seen by taps.
#[derive(Debug, Default)]
pub struct Recorder {
    span: Span,
    links: Vec<LinkInfo>,
    /// Start of the observed program; `None` until known.
    begins: Option<Time>,
    starts: Option<Time>,
    ends: Option<Time>,
    /// Packets between the start of the program and the start of the recording, and when the last of them left.
    early: (usize, Time),
    shown: usize,
    /// Later packets are not shown: enough were seen.
    horizon: Option<Time>,
    latest: Time,
    packets: Vec<Passed>,
}

impl Recorder {
    /// A recorder that waits for [`start`](Self::start).
    pub fn new(span: Span) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self { span, ..Self::default() }))
    }

    /// Lets a recorder see the packets of a link, which is `name` in its output.
    pub fn tap(recorder: &Rc<RefCell<Self>>, fabric: &mut Fabric, id: LinkId, name: impl Into<String>) {
        let params = fabric.wires.link(id).params();
        let info = LinkInfo { id, name: name.into(), generation: params.generation, width: params.width };
        recorder.borrow_mut().links.push(info);
        fabric.wires.tap(id, Trace::shared(recorder));
    }

    /// Starts recording at `begin` plus the span's `from`.
    pub fn start(&mut self, begin: Time) {
        self.begins = Some(begin);
        self.starts = Some(begin + self.span.from);
        self.ends = match self.span.until {
            Some(Until::Time(time)) => Some(begin + time),
            Some(Until::Stall(_)) | None => None,
        };
    }

    /// Whether `time` is within the recording.
    pub fn wants(&self, time: Time) -> bool {
        self.starts.is_some_and(|starts| time >= starts)
            && self.horizon.into_iter().chain(self.ends).all(|end| time <= end)
    }

    /// Whether it has all packets to show.
    pub fn is_full(&self) -> bool {
        self.horizon.is_some()
    }

    /// Start of the observed program and of the recording, once known.
    pub fn starts(&self) -> Option<(Time, Time)> {
        self.begins.zip(self.starts)
    }

    /// End of the recording, if one is set.
    pub fn ends(&self) -> Option<Time> {
        self.ends
    }

    /// Forgets packets that are older than the last ones to show.
    pub fn forget(&mut self) {
        let wanted = self.span.packets;
        if self.span.stall().is_none() || wanted == 0 || self.packets.len() < 4 * wanted {
            return;
        }
        let shown = |(_, passed): &(usize, &Passed)| self.span.filter.shows(passed);
        if let Some((first, _)) = self.packets.iter().enumerate().rev().filter(shown).nth(wanted) {
            self.packets.drain(..first);
        }
    }

    /// Returns the recording, in order of time.
    pub fn capture(&mut self) -> Capture {
        let mut packets = std::mem::take(&mut self.packets);
        packets.sort_by_key(|passed| (passed.at, passed.link, passed.from));
        if let Some(horizon) = self.horizon {
            packets.retain(|passed| passed.at <= horizon);
        }
        if self.span.stall().is_some() && self.span.packets > 0 {
            let shown = |(_, passed): &(usize, &Passed)| self.span.filter.shows(passed);
            let first = packets.iter().enumerate().rev().filter(shown).nth(self.span.packets - 1);
            if let Some((first, _)) = first {
                packets.drain(..first);
            }
        }
        let (early, last) = self.early;
        let early = (early > 0).then(|| (early, last.since(self.begins.unwrap_or(last))));
        Capture { links: self.links.clone(), span: self.span.clone(), packets, doorbells: Vec::new(), early }
    }
}

impl Sink<Passed> for Recorder {
    fn write(&mut self, passed: Passed) {
        // DLLPs are reported late: one from before the horizon may still come.
        if !self.wants(passed.at) {
            let is_early =
                |starts| passed.at < starts && self.begins.is_some_and(|begins| passed.at >= begins);
            if self.starts.is_some_and(is_early) {
                self.early = (self.early.0 + 1, self.early.1.max(passed.at));
            }
            return;
        }
        if self.span.filter.shows(&passed) {
            self.shown += 1;
            self.latest = self.latest.max(passed.at);
        }
        if self.shown == self.span.packets && self.span.stall().is_none() {
            self.horizon.get_or_insert(self.latest);
        }
        self.packets.push(passed);
    }
}

impl Capture {
    /// The packets of all links, and each read with its completions.
    pub fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::default();
        links::add_links(&mut timeline, self);
        timeline
    }

    /// Why there is nothing to show, and a remedy; `None` if there is something.
    pub fn why_empty(&self) -> Option<String> {
        if self.shown().next().is_some() {
            return None;
        }
        let names: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
        let links = names.join(", ");
        if !self.packets.is_empty() {
            let seen: BTreeSet<_> = self.packets.iter().map(|p| Row::of(self, 0, p, p.at).kind()).collect();
            let seen: Vec<_> = seen.into_iter().collect();
            return Some(format!(
                "none of the {} packets on the link to {links} is of a type that --type asks for; there were {}",
                self.packets.len(),
                seen.join(", ")
            ));
        }
        Some(match self.early {
            Some((count, last)) => format!(
                "nothing passed the link to {links} from {} on: the last of {count} packets left {} after the beginning; give an earlier --from",
                self.span.from,
                human(last)
            ),
            None => format!(
                "nothing passed the link to {links}: no program of the scenario uses that device; --link chooses another slot, and \
                 `nearfar tree` shows what is where"
            ),
        })
    }

    /// The packets to show, each with its number on the analyser (from 1; hidden packets count).
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Passed)> {
        let limit = if self.span.packets == 0 { usize::MAX } else { self.span.packets };
        let numbered = self.packets.iter().enumerate().map(|(index, passed)| (index + 1, passed));
        numbered.filter(|(_, passed)| self.span.filter.shows(passed)).take(limit)
    }

    /// T0: the start of the first packet shown.
    pub fn origin(&self) -> Time {
        self.shown().next().map_or(Time::ZERO, |(_, passed)| passed.at)
    }

    /// Looks up a link.
    ///
    /// # Panics
    /// If the link was not tapped.
    pub fn link(&self, id: LinkId) -> &LinkInfo {
        self.links.iter().find(|link| link.id == id).expect("a packet comes from a tap")
    }
}
