//! Out-of-order data: stored by position until the gap before them is filled.

use crate::tcp::Payload;

/// Maximum number of non-adjacent pieces (one window of full-size segments).
const MOST: usize = 4096;
/// Pieces of this size are not merged further, so that a reader soon frees memory.
const MOST_JOINED: u64 = 32 << 10;

/// Out-of-order pieces, sorted and without overlaps.
#[derive(Debug)]
pub(super) struct Early<P> {
    pieces: Vec<(u64, P)>,
    bytes: u64,
    memory: u64,
    /// The range that arrived last, which is reported first (RFC 2018, section 4).
    latest: Option<(u64, u64)>,
}

impl<P> Default for Early<P> {
    fn default() -> Self {
        Self { pieces: Vec::new(), bytes: 0, memory: 0, latest: None }
    }
}

impl<P: Payload> Early<P> {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces in order.
    #[cfg(test)]
    pub fn pieces(&self) -> impl Iterator<Item = &P> {
        self.pieces.iter().map(|(_, data)| data)
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory used by the pieces, bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    fn enter(&mut self, data: &P) {
        self.bytes += u64::from(data.len());
        self.memory += u64::from(data.true_size());
    }

    fn leave(&mut self, data: &P) {
        self.bytes -= u64::from(data.len());
        self.memory -= u64::from(data.true_size());
        if self.pieces.is_empty() {
            self.latest = None;
        }
    }

    /// Stores the new part of a piece; the rest goes to `discarded`. Returns false if the whole piece was known.
    pub fn hold(&mut self, mut position: u64, mut data: P, discarded: &mut Vec<P>) -> bool {
        let at = self.pieces.partition_point(|(p, _)| *p <= position);
        if let Some((before, held)) = at.checked_sub(1).and_then(|i| self.pieces.get(i)) {
            let end = before + u64::from(held.len());
            let known = end.saturating_sub(position).min(u64::from(data.len()));
            data.drop_front(known as u32);
            position += known;
        }
        let mut behind = at;
        while let Some((after, held)) = self.pieces.get(behind) {
            let end = position + u64::from(data.len());
            if *after >= end {
                break;
            }
            if after + u64::from(held.len()) > end {
                data.truncate((after - position) as u32);
                break;
            }
            behind += 1;
        }
        if data.is_empty() || self.pieces.len() >= MOST {
            let is_new = !data.is_empty();
            discarded.push(data);
            return is_new;
        }
        self.enter(&data);
        self.latest = Some((position, position + u64::from(data.len())));
        let first = discarded.len();
        discarded.extend(self.pieces.splice(at..behind, [(position, data)]).map(|(_, old)| old));
        discarded[first..].iter().for_each(|old| self.leave(old));
        true
    }

    /// Passes pieces that have become in order at `next` to `accept`, without the parts before it; fully covered ones
    /// go to `discarded`.
    pub fn follow(&mut self, mut next: u64, discarded: &mut Vec<P>, mut accept: impl FnMut(P)) {
        let mut used = 0;
        while let Some((position, data)) = self.pieces.get_mut(used)
            && *position <= next
        {
            let known = (next - *position).min(u64::from(data.len()));
            let mut data = std::mem::replace(data, P::empty());
            self.bytes -= u64::from(data.len());
            self.memory -= u64::from(data.true_size());
            data.drop_front(known as u32);
            next += u64::from(data.len());
            if data.is_empty() {
                discarded.push(data)
            } else {
                accept(data)
            }
            used += 1;
        }
        self.pieces.drain(..used);
        if self.pieces.is_empty() {
            self.latest = None;
        }
    }

    /// Removes the last piece if it is after `position`.
    pub fn pop_behind(&mut self, position: u64) -> Option<P> {
        let (_, data) = self.pieces.pop_if(|(last, _)| *last > position)?;
        self.leave(&data);
        Some(data)
    }

    /// Removes all pieces.
    pub fn drain(&mut self) -> impl Iterator<Item = P> {
        std::mem::take(self).pieces.into_iter().map(|(_, data)| data)
    }

    /// Merges neighbours, see [`put_together`].
    pub fn collapse(&mut self, join: &mut impl FnMut(Vec<P>) -> Result<P, Vec<P>>) {
        self.pieces = put_together(std::mem::take(&mut self.pieces), join);
        self.memory = self.pieces.iter().map(|(_, data)| u64::from(data.true_size())).sum();
    }

    /// The ranges for the SACK option: the most recently changed one, then from the lowest.
    pub fn ranges(&self) -> ([(u64, u64); 4], usize) {
        let mut all = [(0, 0); 4];
        let mut count = 0;
        let Some(latest) = self.latest else { return (all, 0) };
        let mut index = 0;
        let mut first = None;
        let mut rest = 1;
        while let Some((start, data)) = self.pieces.get(index) {
            let (start, mut end) = (*start, start + u64::from(data.len()));
            index += 1;
            while let Some((next, more)) = self.pieces.get(index)
                && *next == end
            {
                end += u64::from(more.len());
                index += 1;
            }
            if start <= latest.0 && latest.1 <= end {
                first = Some((start, end));
            } else if rest < all.len() {
                all[rest] = (start, end);
                rest += 1;
            }
            if first.is_some() && rest == all.len() {
                break;
            }
        }
        match first {
            Some(range) => {
                all[0] = range;
                count = rest;
            }
            None => {
                all.rotate_left(1);
                count += rest - 1;
            }
        }
        (all, count)
    }
}

/// Merges adjacent pieces that use more than twice the memory that they show (Linux: `tcp_collapse`); `join` merges
/// them, or returns them if it cannot.
pub(super) fn put_together<P: Payload>(
    pieces: impl IntoIterator<Item = (u64, P)>,
    join: &mut impl FnMut(Vec<P>) -> Result<P, Vec<P>>,
) -> Vec<(u64, P)> {
    let (mut done, mut group) = (Vec::new(), Vec::new());
    let (mut from, mut end) = (0, 0);
    let mut close = |done: &mut Vec<(u64, P)>, mut from, group: &mut Vec<P>| {
        if group.is_empty() {
            return;
        }
        match join(std::mem::take(group)) {
            Ok(one) => done.push((from, one)),
            Err(same) => same.into_iter().for_each(|data| {
                let at = from;
                from += u64::from(data.len());
                done.push((at, data));
            }),
        }
    };
    for (position, data) in pieces {
        let loose = data.true_size() > 2 * data.len();
        if !loose || position != end || end - from >= MOST_JOINED {
            close(&mut done, from, &mut group);
        }
        end = position + u64::from(data.len());
        if loose {
            if group.is_empty() {
                from = position;
            }
            group.push(data);
        } else {
            done.push((position, data));
        }
    }
    close(&mut done, from, &mut group);
    done
}
