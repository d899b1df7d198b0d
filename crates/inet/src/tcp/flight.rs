//! Data in flight: for each range, when it was sent, whether the peer holds it, and whether it is lost.

use std::collections::VecDeque;

use units::Time;

/// State of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delivery {
    UnderWay,
    /// Selectively acknowledged (RFC 2018).
    Held,
    Lost,
}

/// A range of positions sent together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub start: u64,
    pub end: u64,
    /// When it was last sent.
    pub at: Time,
    /// Order of sending, to distinguish ranges sent at the same time.
    pub turn: u64,
    /// Whether it was retransmitted.
    pub again: bool,
    fate: Delivery,
}

/// All positions sent and not acknowledged: contiguous ranges, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    ranges: VecDeque<Sent>,
    /// Bytes in held ranges, and in lost ranges.
    held: u64,
    lost: u64,
    /// Bytes in retransmitted ranges. If neither these nor held ranges exist, no loss can be detected.
    again: u64,
    turns: u64,
}

impl Flight {
    /// Adds new positions at the end.
    pub fn push(&mut self, start: u64, end: u64, at: Time) {
        debug_assert!(self.ranges.back().is_none_or(|last| last.end == start));
        self.turns += 1;
        let turn = self.turns;
        self.ranges.push_back(Sent { start, end, at, turn, again: false, fate: Delivery::UnderWay });
    }

    /// Everything before `position` is acknowledged; calls `delivered` for parts not held before.
    pub fn acknowledge(&mut self, position: u64, mut delivered: impl FnMut(Sent)) {
        while let Some(&first) = self.ranges.front()
            && first.start < position
        {
            let part = Sent { end: first.end.min(position), ..first };
            self.uncount(&part);
            match first.end <= position {
                true => drop(self.ranges.pop_front()),
                false => self.ranges[0].start = position,
            }
            if part.fate != Delivery::Held {
                delivered(part);
            }
        }
    }

    /// The peer holds a range; calls `delivered` for newly held parts. Returns whether there were any.
    pub fn hold(&mut self, start: u64, end: u64, mut delivered: impl FnMut(Sent)) -> bool {
        let mut news = false;
        self.change(start, end, |sent| {
            if sent.fate != Delivery::Held {
                news = true;
                delivered(*sent);
                sent.fate = Delivery::Held;
            }
        });
        news
    }

    /// A range is retransmitted.
    pub fn resend(&mut self, start: u64, end: u64, at: Time) {
        self.turns += 1;
        let turn = self.turns;
        self.change(start, end, |sent| {
            if sent.fate != Delivery::Held {
                *sent = Sent { at, turn, again: true, fate: Delivery::UnderWay, ..*sent };
            }
        });
    }

    /// Marks each range in flight as lost or not lost according to `is_lost`.
    pub fn lose(&mut self, mut is_lost: impl FnMut(&Sent) -> bool) {
        let mut more = 0;
        for sent in &mut self.ranges {
            if sent.fate == Delivery::UnderWay && is_lost(sent) {
                sent.fate = Delivery::Lost;
                more += sent.end - sent.start;
            }
        }
        self.lost += more;
    }

    /// Marks a range as lost, except for held parts.
    pub fn lose_range(&mut self, start: u64, end: u64) {
        self.change(start, end, |sent| {
            if sent.fate == Delivery::UnderWay {
                sent.fate = Delivery::Lost;
            }
        });
    }

    /// The peer has dropped the data it held: they are in flight again.
    pub fn forget_held(&mut self) {
        self.ranges
            .iter_mut()
            .filter(|sent| sent.fate == Delivery::Held)
            .for_each(|s| s.fate = Delivery::UnderWay);
        self.held = 0;
    }

    /// Whether the first range is held; a peer that keeps its reported data would have acknowledged it.
    pub fn first_is_held(&self) -> bool {
        self.ranges.front().is_some_and(|first| first.fate == Delivery::Held)
    }

    /// The first lost range, limited to `most` bytes.
    pub fn first_lost(&self, most: u64) -> Option<(u64, u64)> {
        if self.lost == 0 {
            return None;
        }
        let mut from = self.ranges.iter().skip_while(|sent| sent.fate != Delivery::Lost);
        let first = from.next()?;
        let rest = from.take_while(|sent| sent.fate == Delivery::Lost && sent.start - first.start < most);
        let end = rest.last().map_or(first.end, |last| last.end);
        Some((first.start, end.min(first.start + most)))
    }

    /// The last range.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.ranges.back().map(|sent| (sent.start, sent.end))
    }

    /// Estimated bytes in the network.
    pub fn in_network(&self) -> u64 {
        self.bytes() - self.held - self.lost
    }

    /// Bytes lost and not retransmitted yet.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes that the peer holds beyond its acknowledgement.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Whether anything is retransmitted or held; otherwise no loss is detectable without a timer.
    pub fn has_holes(&self) -> bool {
        self.held + self.again > 0
    }

    /// Number of held ranges, counting adjacent ones once.
    pub fn held_ranges(&self) -> usize {
        let mut before = Delivery::UnderWay;
        let begins = |sent: &&Sent| {
            let begins = sent.fate == Delivery::Held && before != Delivery::Held;
            before = sent.fate;
            begins
        };
        self.ranges.iter().filter(begins).count()
    }

    fn bytes(&self) -> u64 {
        let ends = self.ranges.front().zip(self.ranges.back());
        ends.map_or(0, |(first, last)| last.end - first.start)
    }

    fn count(&mut self, sent: &Sent) {
        let bytes = sent.end - sent.start;
        match sent.fate {
            Delivery::UnderWay => {}
            Delivery::Held => self.held += bytes,
            Delivery::Lost => self.lost += bytes,
        }
        self.again += if sent.again { bytes } else { 0 };
    }

    fn uncount(&mut self, sent: &Sent) {
        let bytes = sent.end - sent.start;
        match sent.fate {
            Delivery::UnderWay => {}
            Delivery::Held => self.held -= bytes,
            Delivery::Lost => self.lost -= bytes,
        }
        self.again -= if sent.again { bytes } else { 0 };
    }

    /// Changes the ranges within `start..end`, splitting at its borders and merging equal neighbours.
    fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Sent)) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let first = self.ranges.partition_point(|sent| sent.end <= start);
        let behind = self.ranges.partition_point(|sent| sent.start < end);
        for index in first..behind {
            let mut sent = self.ranges[index];
            self.uncount(&sent);
            change(&mut sent);
            self.count(&sent);
            self.ranges[index] = sent;
        }
        self.join(first.saturating_sub(1), (behind + 1).min(self.ranges.len()));
    }

    fn cut(&mut self, at: u64) {
        let index = self.ranges.partition_point(|sent| sent.end <= at);
        if let Some(&sent) = self.ranges.get(index)
            && sent.start < at
        {
            self.ranges[index].end = at;
            self.ranges.insert(index + 1, Sent { start: at, ..sent });
        }
    }

    /// Merges equal neighbours. For held ranges, the time no longer matters.
    fn join(&mut self, from: usize, to: usize) {
        for index in (from..to.saturating_sub(1)).rev() {
            let (a, b) = (self.ranges[index], self.ranges[index + 1]);
            let alike = a.turn == b.turn || a.fate == Delivery::Held;
            if a.fate == b.fate && alike {
                self.uncount(&a);
                self.uncount(&b);
                let both = Sent { end: b.end, ..a };
                self.count(&both);
                self.ranges[index] = both;
                self.ranges.remove(index + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Duration;

    fn at(n: u64) -> Time {
        Time::ZERO + Duration::from_us(n)
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Byte(u64, bool, Delivery);

    proptest! {
        /// Like bytes, each with its time and fate, in a plain array.
        #[test]
        fn like_single_bytes(
            sends in prop::collection::vec(1u64..20, 1..15),
            steps in prop::collection::vec((0u8..6, 0u64..150, 0u64..40), 0..40),
        ) {
            let (mut flight, mut bytes, mut una) = (Flight::default(), Vec::new(), 0u64);
            for (n, length) in (0..).zip(sends) {
                let start = bytes.len() as u64;
                flight.push(start, start + length, at(n));
                bytes.extend((0..length).map(|_| Byte(n, false, Delivery::UnderWay)));
            }
            for (n, (what, from, length)) in (100..).zip(steps) {
                let start = from.clamp(una, bytes.len() as u64);
                let end = (start + length).min(bytes.len() as u64);
                let range = start as usize..end as usize;
                let mut told = 0;
                let tell = |sent: Sent| told += sent.end - sent.start;
                let part = &mut bytes[range.clone()];
                let new = part.iter().filter(|b| b.2 != Delivery::Held).count() as u64;
                match what {
                    0 => {
                        let before = bytes[una as usize..start as usize].iter().filter(|b| b.2 != Delivery::Held).count();
                        flight.acknowledge(start, tell);
                        una = start;
                        prop_assert_eq!(told, before as u64);
                    }
                    1 | 2 => {
                        part.iter_mut().for_each(|b| b.2 = Delivery::Held);
                        prop_assert_eq!(flight.hold(start, end, tell), new > 0);
                        prop_assert_eq!(told, new);
                    }
                    3 => {
                        part.iter_mut().filter(|b| b.2 != Delivery::Held).for_each(|b| *b = Byte(n, true, Delivery::UnderWay));
                        flight.resend(start, end, at(n));
                    }
                    4 => {
                        part.iter_mut().filter(|b| b.2 == Delivery::UnderWay).for_each(|b| b.2 = Delivery::Lost);
                        flight.lose_range(start, end);
                    }
                    _ => {
                        let rest = &mut bytes[una as usize..];
                        rest.iter_mut().filter(|b| b.2 == Delivery::UnderWay && b.0 < from).for_each(|b| b.2 = Delivery::Lost);
                        flight.lose(|sent| sent.at < at(from));
                    }
                }
                let rest = &bytes[una as usize..];
                let of = |fate| rest.iter().filter(|b| b.2 == fate).count() as u64;
                prop_assert_eq!(flight.held(), of(Delivery::Held));
                prop_assert_eq!(flight.lost(), of(Delivery::Lost));
                prop_assert_eq!(flight.in_network(), of(Delivery::UnderWay));
                let lost = rest.iter().position(|b| b.2 == Delivery::Lost).map(|first| {
                    let behind = rest[first..].iter().position(|b| b.2 != Delivery::Lost).unwrap_or(rest.len() - first);
                    (una + first as u64, una + first as u64 + behind.min(7) as u64)
                });
                prop_assert_eq!(flight.first_lost(7), lost);
                let held = rest.windows(2).filter(|w| w[0].2 != Delivery::Held && w[1].2 == Delivery::Held).count();
                let first = rest.first().is_some_and(|b| b.2 == Delivery::Held);
                prop_assert_eq!(flight.held_ranges(), held + usize::from(first));
                prop_assert_eq!(flight.first_is_held(), first);
                for sent in &flight.ranges {
                    let all = &bytes[sent.start as usize..sent.end as usize];
                    prop_assert!(sent.fate == Delivery::Held || all.iter().all(|b| at(b.0) == sent.at && b.1 == sent.again));
                }
            }
        }
    }
}
