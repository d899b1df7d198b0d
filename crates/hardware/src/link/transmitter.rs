//! One end of a link as the sender of TLPs: what waits, and for which credits.

use std::collections::VecDeque;

use units::{Duration, Time};
use wire::pcie::FlowClass;
use wire::pcie::ordering::{OrderingKey, Passing};

use super::due::Due;
use super::on_wire::Wire;
use super::params::{CreditLimits, Credits, ReceiverParams};
use super::planned::Plans;
use super::replay::ReplayBuffer;
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
    under_way: Due<Credits>,
}

impl CreditAccount {
    fn new(limit: Option<Credits>) -> Self {
        Self { available: limit, under_way: Due::default() }
    }

    /// Takes what has arrived by `now`; whether that is anything.
    fn collect(&mut self, now: Time) -> bool {
        let any = self.under_way.first() <= now;
        while let Some((_, credits)) = self.under_way.take(now) {
            self.refund(credits);
        }
        any
    }

    /// Whether `need` can be paid of what there is.
    fn covers(&self, need: Credits) -> bool {
        self.available.is_none_or(|available| available.header >= need.header && available.data >= need.data)
    }

    /// Whether not even a TLP without data can be paid.
    fn is_out_of_headers(&self) -> bool {
        self.available.is_some_and(|available| available.header == 0)
    }

    fn pay(&mut self, need: Credits) {
        if let Some(available) = &mut self.available {
            *available -= need;
        }
    }

    /// Takes a payment back.
    fn refund(&mut self, paid: Credits) {
        if let Some(available) = &mut self.available {
            *available += paid;
        }
    }

    /// Credits that an UpdateFC brings at `at`.
    fn receive(&mut self, at: Time, credits: Credits) {
        if self.available.is_some() {
            self.under_way.push(at, credits);
        }
    }

    /// Credits available or under way, to check that none is lost.
    pub fn outstanding(&self) -> Option<Credits> {
        self.available.map(|now| now + self.under_way.iter().map(|&(_, credits)| credits).sum())
    }
}

/// Sender of one direction of a link.
#[derive(Debug)]
pub struct Transmitter {
    queues: [VecDeque<Waiting>; 3],
    /// TLPs in all queues: whether there are any is asked several times for each TLP.
    waiting: usize,
    arrivals: u64,
    /// TLPs that came before this one cannot go until credits come: they need not be looked at again.
    stuck_before: u64,
    credits: [CreditAccount; 3],
    /// When the link will look again whether a waiting TLP can go.
    wake: Option<Time>,
    /// Since when a TLP has been waiting for credits.
    starved_since: Option<Time>,
    /// The wire that it feeds.
    pub wire: Wire,
    /// What it has sent and is not acknowledged.
    pub replay: ReplayBuffer,
    /// What it will send later.
    pub planned: Plans,
}

impl Transmitter {
    /// A transmitter that feeds `wire` towards a receiver of these figures.
    pub fn new(wire: Wire, towards: &ReceiverParams) -> Self {
        Self {
            queues: Default::default(),
            waiting: 0,
            arrivals: 0,
            stuck_before: 0,
            credits: CLASSES.map(|class| CreditAccount::new(towards.credits.of(class))),
            wake: None,
            starved_since: None,
            wire,
            replay: ReplayBuffer::new(towards.replay_tlps),
            planned: Plans::default(),
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
        if self.is_waiting() {
            return false;
        }
        let account = &mut self.credits[class as usize];
        account.collect(now);
        let can_go = account.covers(credits);
        if can_go {
            account.pay(credits);
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
        for account in &mut self.credits {
            if account.collect(now) {
                self.stuck_before = 0;
            }
        }
        let stuck = self.stuck_before;
        let first = |queue: &VecDeque<Waiting>| queue.partition_point(|waiting| waiting.order < stuck);
        let mut places = [0, 1, 2].map(|class| first(&self.queues[class]));
        loop {
            let candidate = |class: FlowClass| {
                let place = places[class as usize];
                let waiting = self.queues[class as usize].get(place).filter(|_| place < CHOICE)?;
                Some((waiting.order, class, place))
            };
            let oldest = CLASSES.into_iter().filter_map(candidate).min_by_key(|&(order, ..)| order);
            let Some((order, class, place)) = oldest else {
                self.stuck_before = self.arrivals;
                return None;
            };
            let waiting = self.queues[class as usize][place];
            let account = &mut self.credits[class as usize];
            if account.covers(waiting.credits) {
                if self.may_go(class, place, &waiting) {
                    self.credits[class as usize].pay(waiting.credits);
                    if place > 0 {
                        self.queues[class as usize][0].passed += 1;
                    }
                    self.queues[class as usize].remove(place);
                    self.waiting -= 1;
                    // Those behind it have one less to pass; those before it have lost credits at most.
                    self.stuck_before = order;
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
        let own = &self.queues[class as usize];
        if place > 0 && own[0].passed >= MOST_PASSED {
            return false;
        }
        let may_pass = |earlier: &Waiting| waiting.may_pass(earlier);
        let others = CLASSES.into_iter().filter(|&other| other != class);
        own.iter().take(place).all(may_pass)
            && others
                .map(|other| &self.queues[other as usize])
                .all(|queue| queue.iter().take_while(|other| other.order < waiting.order).all(may_pass))
    }

    /// Takes a payment for `class` back.
    pub fn refund(&mut self, class: FlowClass, paid: Credits) {
        self.credits[class as usize].refund(paid);
        self.stuck_before = 0;
    }

    /// Credits for `class` that an UpdateFC brings at `at`.
    pub fn receive(&mut self, class: FlowClass, at: Time, credits: Credits) {
        self.credits[class as usize].receive(at, credits);
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

    /// Forgets everything in flight, as when the link goes down. Hands every packet to `free`.
    pub fn clear(&mut self, limits: &CreditLimits, mut free: impl FnMut(PacketId)) {
        for queue in &mut self.queues {
            queue.drain(..).for_each(|waiting| free(waiting.packet));
        }
        (self.waiting, self.arrivals, self.stuck_before) = (0, 0, 0);
        (self.wake, self.starved_since) = (None, None);
        self.credits = CLASSES.map(|class| CreditAccount::new(limits.of(class)));
        self.replay.clear(free);
        self.planned = Plans::default();
    }

    /// Whether an event at `at` is to be asked for, so that the link looks again: none comes earlier.
    pub fn wants_wake(&mut self, now: Time, at: Time) -> bool {
        let wants = self.wake.is_none_or(|wake| wake <= now || wake > at);
        if wants {
            self.wake = Some(at);
        }
        wants
    }

    /// An event that was asked for has come.
    pub fn woken(&mut self, now: Time) {
        self.wake.take_if(|wake| *wake <= now);
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
