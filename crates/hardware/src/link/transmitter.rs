//! One end of a link as the sender of TLPs: queues, credits, the wire, replay.

use std::collections::VecDeque;

use engine::EventKey;
use units::{Duration, Time};
use wire::pcie::FlowClass;
use wire::pcie::ordering::{OrderingKey, Passing};

use super::params::{CreditLimits, Credits};
use crate::packet::PacketId;

/// The three flow classes in the order in which their queues are kept.
pub const CLASSES: [FlowClass; 3] = [FlowClass::Posted, FlowClass::NonPosted, FlowClass::Completion];

/// A TLP that waits for credits, for replay space or for an older one.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The TLP.
    pub packet: PacketId,
    /// Place in the order of arrival over all classes.
    pub order: u64,
    /// Credits that it takes.
    pub credits: Credits,
    /// What decides which others it may pass; `None` for what is no TLP any more, which passes nothing.
    key: Option<OrderingKey>,
    /// How often others of its class have passed it as the oldest of them.
    passed: u8,
}

impl Waiting {
    /// Whether the ordering table lets it pass `earlier`.
    fn may_pass(&self, earlier: &Self) -> bool {
        let (Some(own), Some(earlier)) = (&self.key, &earlier.key) else { return false };
        own.passes(earlier) != Passing::MustNot
    }
}

/// TLPs of each class that a transmitter chooses among (assumed: arbiters compare a handful).
const CHOICE: usize = 16;

/// How often others may take the credits of their class before the oldest one that lacks them (assumed: no TLP may wait
/// for ever because smaller ones fit).
const MOST_PASSED: u8 = 16;

/// Credits that a transmitter has and those that are on their way to it.
#[derive(Debug, Default)]
pub struct CreditAccount {
    /// What may still be sent; `None` is infinite.
    available: Option<Credits>,
    /// Announced by UpdateFCs that are under way: when they take effect, how much.
    under_way: VecDeque<(Time, Credits)>,
}

impl CreditAccount {
    fn new(limit: Option<Credits>) -> Self {
        Self { available: limit, under_way: VecDeque::new() }
    }

    /// Whether `need` can be paid at `now`.
    fn covers(&mut self, now: Time, need: Credits) -> bool {
        let Some(available) = &mut self.available else { return true };
        while let Some(&(at, credits)) = self.under_way.front() {
            if at > now {
                break;
            }
            available.header += credits.header;
            available.data += credits.data;
            self.under_way.pop_front();
        }
        available.header >= need.header && available.data >= need.data
    }

    /// Whether not even a TLP without data can be paid.
    fn is_out_of_headers(&self) -> bool {
        self.available.is_some_and(|available| available.header == 0)
    }

    fn pay(&mut self, need: Credits) {
        if let Some(available) = &mut self.available {
            available.header -= need.header;
            available.data -= need.data;
        }
    }

    /// Takes a payment back.
    pub fn refund(&mut self, paid: Credits) {
        if let Some(available) = &mut self.available {
            available.header += paid.header;
            available.data += paid.data;
        }
    }

    /// Credits that an UpdateFC brings at `at`.
    pub fn receive(&mut self, at: Time, credits: Credits) {
        if self.available.is_some() {
            self.under_way.push_back((at, credits));
        }
    }

    /// Credits available or under way, to check that none is lost.
    pub fn outstanding(&self) -> Option<Credits> {
        self.available.map(|now| {
            self.under_way
                .iter()
                .fold(now, |sum, (_, c)| Credits { header: sum.header + c.header, data: sum.data + c.data })
        })
    }
}

/// A TLP that can be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Replayable {
    /// Its sequence number.
    pub sequence: u16,
    /// Its bytes.
    pub copy: PacketId,
    /// Its length on the wire in bytes.
    pub wire_bytes: u32,
}

/// A TLP that will leave later. Its credits are paid.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// When it is to leave.
    pub at: Time,
    /// The TLP.
    pub packet: PacketId,
    /// Of which class.
    pub class: FlowClass,
    /// Credits that it takes.
    pub credits: Credits,
    /// When the wire has sent it if nothing more comes in between.
    pub wire_free: Time,
    /// When it is delivered then.
    pub arrival: Time,
    /// The event that delivers it then.
    pub delivery: EventKey,
}

/// Sender of one direction of a link.
#[derive(Debug)]
pub struct Transmitter {
    queues: [VecDeque<Waiting>; 3],
    /// TLPs in all queues: whether there are any is asked several times for each TLP.
    waiting: usize,
    arrivals: u64,
    credits: [CreditAccount; 3],
    /// When the wire has sent all that was handed to it.
    pub wire_free: Time,
    /// When the next SKP ordered set is due.
    next_skip: Time,
    /// Sequence number of the next TLP.
    next_sequence: u16,
    /// Sequence number of the oldest TLP that is not acknowledged.
    oldest: u16,
    /// TLPs that will leave later, in order of time.
    pub planned: VecDeque<Planned>,
    /// When the last of the TLPs leaves that could not be planned.
    pub unplanned_until: Time,
    /// TLPs not yet acknowledged, oldest first; kept only where something can damage or lose them.
    pub replayable: VecDeque<Replayable>,
    /// Acks under way: when they take effect, the last sequence number they cover.
    pub acks: VecDeque<(Time, u16)>,
    /// When the link will look again whether a waiting TLP can go.
    pub wake: Option<Time>,
    /// Since when a TLP has been waiting for credits.
    pub starved_since: Option<Time>,
    /// When the oldest unacknowledged TLP is replayed without an Ack.
    pub replay_deadline: Option<Time>,
    /// Replays since the last progress; the fourth retrains the link.
    pub replays_in_a_row: u8,
}

impl Transmitter {
    /// A transmitter towards a receiver that advertised `limits`.
    pub fn new(limits: &CreditLimits) -> Self {
        Self {
            queues: Default::default(),
            waiting: 0,
            arrivals: 0,
            credits: CLASSES.map(|class| CreditAccount::new(limits.of(class))),
            wire_free: Time::ZERO,
            next_skip: Time::ZERO,
            next_sequence: 0,
            oldest: 0,
            planned: VecDeque::new(),
            unplanned_until: Time::ZERO,
            replayable: VecDeque::new(),
            acks: VecDeque::new(),
            wake: None,
            starved_since: None,
            replay_deadline: None,
            replays_in_a_row: 0,
        }
    }

    /// Appends a TLP of `class` to its queue.
    pub fn enqueue(
        &mut self,
        class: FlowClass,
        packet: PacketId,
        credits: Credits,
        key: Option<OrderingKey>,
    ) {
        let waiting = Waiting { packet, order: self.arrivals, credits, key, passed: 0 };
        self.queues[class as usize].push_back(waiting);
        self.waiting += 1;
        self.arrivals += 1;
    }

    /// Pays for a TLP that arrives while nothing waits; `false` if something does or the credits do not suffice.
    pub fn pay_at_once(&mut self, now: Time, class: FlowClass, credits: Credits) -> bool {
        let can_go = !self.is_waiting() && self.credits[class as usize].covers(now, credits);
        if can_go {
            self.credits[class as usize].pay(credits);
        }
        can_go
    }

    /// Whether any TLP waits.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// How many TLPs wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many TLPs of `class` wait.
    pub fn waiting_of(&self, class: FlowClass) -> usize {
        self.queues[class as usize].len()
    }

    /// Takes the TLP that the ordering rules and the credits let go first, if any.
    ///
    /// The oldest goes first. Where it lacks credits, the oldest of those goes that have them and may pass all that were
    /// there before (base spec table 2-40): posted requests and completions thereby pass the requests that they must
    /// pass, so that nothing can deadlock.
    pub fn take_next(&mut self, now: Time) -> Option<(FlowClass, Waiting)> {
        let mut places = [0; 3];
        loop {
            let candidate = |class: FlowClass| {
                let place = places[class as usize];
                let waiting = self.queues[class as usize].get(place).filter(|_| place < CHOICE)?;
                Some((waiting.order, class, place))
            };
            let (_, class, place) =
                CLASSES.into_iter().filter_map(candidate).min_by_key(|&(order, ..)| order)?;
            let waiting = self.queues[class as usize][place];
            let account = &mut self.credits[class as usize];
            if account.covers(now, waiting.credits) {
                if self.may_go(class, place, &waiting) {
                    self.credits[class as usize].pay(waiting.credits);
                    if place > 0 {
                        self.queues[class as usize][0].passed += 1;
                    }
                    self.queues[class as usize].remove(place);
                    self.waiting -= 1;
                    return Some((class, waiting));
                }
            } else if account.is_out_of_headers() {
                places[class as usize] = CHOICE;
                continue;
            }
            places[class as usize] += 1;
        }
    }

    /// Whether the TLP at `place` of its queue may pass all that wait and were there before it.
    fn may_go(&self, class: FlowClass, place: usize, waiting: &Waiting) -> bool {
        if place > 0 && self.queues[class as usize][0].passed >= MOST_PASSED {
            return false;
        }
        let earlier = |queue: &VecDeque<Waiting>| queue.partition_point(|other| other.order < waiting.order);
        self.queues.iter().all(|queue| queue.iter().take(earlier(queue)).all(|other| waiting.may_pass(other)))
    }

    /// The account of `class`.
    pub fn account(&mut self, class: FlowClass) -> &mut CreditAccount {
        &mut self.credits[class as usize]
    }

    /// The account of `class`, to look at.
    pub fn account_of(&self, class: FlowClass) -> &CreditAccount {
        &self.credits[class as usize]
    }

    /// When the next UpdateFC takes effect of those that arrive after `now`.
    pub fn next_credit(&self, now: Time) -> Option<Time> {
        let arrivals = self.credits.iter().flat_map(|account| account.under_way.iter().map(|&(at, _)| at));
        arrivals.filter(|&at| at > now).min()
    }

    /// Gives the next TLP its sequence number.
    #[inline]
    pub fn number(&mut self) -> u16 {
        let sequence = self.next_sequence;
        self.next_sequence = (sequence + 1) & 0xfff;
        sequence
    }

    /// Sequence number of the next TLP.
    pub fn next_sequence(&self) -> u16 {
        self.next_sequence
    }

    /// Sequence number of the oldest TLP that is not acknowledged.
    pub fn oldest(&self) -> u16 {
        self.oldest
    }

    /// TLPs sent and not acknowledged: they stay in the replay buffer.
    #[inline]
    pub fn unacknowledged(&self) -> usize {
        usize::from(self.next_sequence.wrapping_sub(self.oldest) & 0xfff)
    }

    /// Whether an Ack has arrived by `now` that has not been looked at.
    #[inline]
    pub fn has_heard(&self, now: Time) -> bool {
        self.acks.front().is_some_and(|&(at, _)| at <= now)
    }

    /// Begins to send at `ready`, when the link has trained: no SKP ordered set is due from before.
    pub fn start(&mut self, ready: Time, skip_interval: Duration) {
        self.wire_free = ready;
        self.next_skip = ready + skip_interval;
    }

    /// When what is to leave at `at` can begin: behind what the wire has to send, and the SKP ordered sets that are due.
    #[inline(always)]
    pub fn begin(&mut self, at: Time, skip: (Duration, Duration)) -> Time {
        let start = at.max(self.wire_free);
        if start >= self.next_skip { self.after_skip(start, skip) } else { start }
    }

    /// When a TLP begins that would begin at `start`, after the SKP ordered sets, one in every `interval`, that are due.
    ///
    /// A set never interrupts a TLP: what falls due meanwhile waits for its end (base spec 4.2.7.3), and the next TLP
    /// for the set. Sets that fall into an idle wire are in the way of none but a TLP that begins just then.
    #[cold]
    fn after_skip(&mut self, start: Time, (interval, time): (Duration, Duration)) -> Time {
        let elapsed = |until: Time| until.since(self.next_skip).as_ps() / interval.as_ps().max(1);
        let put_off = if self.wire_free >= self.next_skip { elapsed(self.wire_free) + 1 } else { 0 };
        let last = self.next_skip + interval * elapsed(start);
        let last_done = if last > self.wire_free { last + time } else { start };
        self.next_skip = last + interval;
        start.max(self.wire_free + time * put_off).max(last_done)
    }

    /// Drops from the replay buffer what Acks covered up to `now`; hands the copies to `free`.
    ///
    /// Returns whether anything was acknowledged.
    pub fn retire(&mut self, now: Time, mut free: impl FnMut(PacketId)) -> bool {
        let mut progress = false;
        while let Some(&(at, sequence)) = self.acks.front() {
            if at > now {
                break;
            }
            self.acks.pop_front();
            if !is_covered(self.oldest, sequence) {
                continue;
            }
            self.oldest = (sequence + 1) & 0xfff;
            self.replays_in_a_row = 0;
            progress = true;
            while let Some(first) =
                self.replayable.front().filter(|first| is_covered(first.sequence, sequence))
            {
                free(first.copy);
                self.replayable.pop_front();
            }
        }
        progress
    }

    /// Forgets everything in flight, as when the link goes down. Hands every packet to `free`.
    pub fn clear(&mut self, limits: &CreditLimits, mut free: impl FnMut(PacketId)) {
        for queue in &mut self.queues {
            queue.drain(..).for_each(|waiting| free(waiting.packet));
        }
        self.replayable.drain(..).for_each(|replayable| free(replayable.copy));
        let wire_free = self.wire_free;
        *self = Self::new(limits);
        self.wire_free = wire_free;
    }

    /// How long a TLP has been starved, if one is, and begins or ends the count.
    pub fn note_starvation(&mut self, now: Time, starved: bool) -> Duration {
        match (starved, self.starved_since) {
            (true, None) => {
                self.starved_since = Some(now);
                Duration::ZERO
            }
            (false, Some(since)) => {
                self.starved_since = None;
                now.since(since)
            }
            _ => Duration::ZERO,
        }
    }
}

/// Whether an Ack of `acknowledged` covers `sequence`: numbers are compared modulo 4096, at most half of it apart.
#[inline]
fn is_covered(sequence: u16, acknowledged: u16) -> bool {
    acknowledged.wrapping_sub(sequence) & 0xfff < 2048
}
