//! Transmitting end of a link: queues and credits.

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

/// The three flow classes in queue order.
pub const CLASSES: [FlowClass; 3] = [FlowClass::Posted, FlowClass::NonPosted, FlowClass::Completion];

/// A TLP that waits for credits, for replay space or behind an older TLP.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The TLP.
    pub packet: PacketId,
    /// Position in the order of arrival across classes.
    pub order: u64,
    /// Credits that it needs.
    pub credits: Credits,
    /// Key for the ordering rules; `None` for anything but a TLP, which passes nothing.
    key: Option<OrderingKey>,
    /// Number of times that TLPs of its class have passed it while it was the oldest of them.
    passed: u8,
}

impl Waiting {
    /// Whether the ordering rules let it pass `earlier`.
    fn may_pass(&self, earlier: &Self) -> bool {
        let (Some(own), Some(earlier)) = (&self.key, &earlier.key) else { return false };
        own.passes(earlier) != Passing::MustNot
    }
}

/// TLPs of each class among which a transmitter chooses (assumed: arbiters compare a handful).
const CHOICE: usize = 16;

/// Number of times that others may take the credits of their class before the oldest TLP, which lacks them (assumed:
/// small TLPs must not starve a large one).
const MOST_PASSED: u8 = 16;

/// Credits of a transmitter, available and in flight.
#[derive(Debug, Default)]
pub struct CreditAccount {
    /// Available credits; `None` is infinite.
    available: Option<Credits>,
    /// Credits announced by UpdateFCs in flight, and when they take effect.
    under_way: Due<Credits>,
}

impl CreditAccount {
    fn new(limit: Option<Credits>) -> Self {
        Self { available: limit, under_way: Due::default() }
    }

    /// Adds the credits that have arrived by `now`. Returns whether there were any.
    #[inline]
    fn collect(&mut self, now: Time) -> bool {
        let any = self.under_way.first() <= now;
        if any {
            self.collect_arrived(now);
        }
        any
    }

    #[inline(never)]
    fn collect_arrived(&mut self, now: Time) {
        while let Some((_, credits)) = self.under_way.take(now) {
            self.refund(credits);
        }
    }

    /// Whether the available credits cover `need`.
    fn covers(&self, need: Credits) -> bool {
        self.available.is_none_or(|available| available.header >= need.header && available.data >= need.data)
    }

    /// Whether there are no header credits left.
    fn is_out_of_headers(&self) -> bool {
        self.available.is_some_and(|available| available.header == 0)
    }

    fn pay(&mut self, need: Credits) {
        if let Some(available) = &mut self.available {
            *available -= need;
        }
    }

    /// Returns consumed credits.
    fn refund(&mut self, paid: Credits) {
        if let Some(available) = &mut self.available {
            *available += paid;
        }
    }

    /// Adds credits that an UpdateFC brings at `at`.
    fn receive(&mut self, at: Time, credits: Credits) {
        if self.available.is_some() {
            self.under_way.push(at, credits);
        }
    }

    /// Credits available or in flight, to check that none is lost.
    pub fn outstanding(&self) -> Option<Credits> {
        self.available.map(|now| now + self.under_way.iter().map(|&(_, credits)| credits).sum())
    }
}

/// Transmitter of one direction of a link.
#[derive(Debug)]
pub struct Transmitter {
    queues: [VecDeque<Waiting>; 3],
    /// TLPs in all queues, cached because it is checked several times per TLP.
    waiting: usize,
    arrivals: u64,
    /// TLPs older than this one cannot be sent until credits arrive, so they need not be checked again.
    stuck_before: u64,
    credits: [CreditAccount; 3],
    /// Time of the scheduled retry.
    wake: Option<Time>,
    /// When a TLP started to wait for credits.
    starved_since: Option<Time>,
    /// Wire of this direction.
    pub wire: Wire,
    /// Unacknowledged TLPs.
    pub replay: ReplayBuffer,
    /// TLPs to be sent later.
    pub planned: Plans,
}

impl Transmitter {
    /// Creates a transmitter on `wire` towards a receiver with these parameters.
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

    /// Consumes the credits of a TLP that arrives while nothing waits; `false` if something waits or credits are
    /// lacking.
    #[inline]
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

    /// Number of waiting TLPs.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Number of waiting TLPs of `class`.
    pub fn waiting_of(&self, class: FlowClass) -> usize {
        self.queues[class as usize].len()
    }

    /// Takes the TLP that may be sent next by the ordering rules and credits, if any.
    ///
    /// The oldest goes first. If it lacks credits, the oldest TLP goes that has them and may pass all earlier ones
    /// (base spec table 2-40). Posted requests and completions thereby pass the requests that they must pass, so there
    /// is no deadlock.
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
                    // Later TLPs have one less to pass; earlier ones have at most lost credits.
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

    /// Whether the TLP at `place` of its queue may pass all older waiting TLPs.
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

    /// Returns consumed credits of `class`.
    pub fn refund(&mut self, class: FlowClass, paid: Credits) {
        self.credits[class as usize].refund(paid);
        self.stuck_before = 0;
    }

    /// Adds credits of `class` that an UpdateFC brings at `at`.
    pub fn receive(&mut self, class: FlowClass, at: Time, credits: Credits) {
        self.credits[class as usize].receive(at, credits);
    }

    /// The credit account of `class`.
    pub fn account_of(&self, class: FlowClass) -> &CreditAccount {
        &self.credits[class as usize]
    }

    /// When the first UpdateFC that arrives after `now` takes effect.
    pub fn next_credit(&self, now: Time) -> Option<Time> {
        let arrivals = self.credits.iter().flat_map(|account| account.under_way.iter().map(|&(at, _)| at));
        arrivals.filter(|&at| at > now).min()
    }

    /// Discards all state when the link goes down. Passes every packet to `free`.
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

    /// Whether a retry has to be scheduled at `at`, as none comes earlier.
    pub fn wants_wake(&mut self, now: Time, at: Time) -> bool {
        let wants = self.wake.is_none_or(|wake| wake <= now || wake > at);
        if wants {
            self.wake = Some(at);
        }
        wants
    }

    /// A scheduled retry has come.
    pub fn woken(&mut self, now: Time) {
        self.wake.take_if(|wake| *wake <= now);
    }

    /// Starts or ends measuring starvation. Returns how long a TLP has been starved.
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
