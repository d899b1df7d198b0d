//! TLPs that wait to be sent, and the credits that they wait for.

use std::collections::VecDeque;

use engine::WaitTime;
use units::{Duration, Time};
use wire::pcie::FlowClass;
use wire::pcie::ordering::{OrderingKey, Passing};

use super::account::CreditAccount;
use super::counters::Lacked;
use super::params::{CreditLimits, Credits};
use crate::packet::{PacketId, Summary};

/// A TLP that waits for credits, for replay space or behind an older TLP.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: PacketId,
    /// Position in the order of arrival across classes.
    order: u64,
    /// Credits that it needs.
    credits: Credits,
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

/// Queues of a direction's transmitter, one for each flow class, and its credits.
#[derive(Debug)]
pub struct Queues {
    queues: [VecDeque<Waiting>; 3],
    /// TLPs in all queues, cached because it is checked several times per TLP.
    waiting: usize,
    arrivals: u64,
    /// TLPs older than this one cannot be sent until credits arrive, so they need not be checked again.
    stuck_before: u64,
    credits: [CreditAccount; 3],
    /// Time of the scheduled retry.
    wake: Option<Time>,
    /// Time during which a TLP has waited for credits.
    starved: WaitTime,
    /// Time during which the oldest waiting TLP has lacked credits, in the order of [`Lacked`].
    lacked: [WaitTime; Lacked::ALL.len()],
    /// What it lacks.
    lacks: Option<Lacked>,
}

impl Queues {
    /// Empty queues towards a receiver that advertises these credits.
    pub fn new(limits: &CreditLimits) -> Self {
        Self {
            queues: Default::default(),
            waiting: 0,
            arrivals: 0,
            stuck_before: 0,
            credits: FlowClass::ALL.map(|class| CreditAccount::new(limits.of(class))),
            wake: None,
            starved: WaitTime::default(),
            lacked: Default::default(),
            lacks: None,
        }
    }

    /// Appends a TLP to the queue of its class.
    pub fn enqueue(&mut self, packet: PacketId, needs: Summary, key: Option<OrderingKey>) {
        let waiting = Waiting { packet, order: self.arrivals, credits: needs.credits, key, passed: 0 };
        self.queues[needs.class as usize].push_back(waiting);
        self.waiting += 1;
        self.arrivals += 1;
    }

    /// Consumes the credits of a TLP that arrives while nothing waits; `false` if something waits or credits are
    /// lacking.
    #[inline]
    pub fn pay_at_once(&mut self, now: Time, Summary { class, credits }: Summary) -> bool {
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
    pub fn take_next(&mut self, now: Time) -> Option<PacketId> {
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
            let oldest = FlowClass::ALL.into_iter().filter_map(candidate).min_by_key(|&(order, ..)| order);
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
                    return Some(waiting.packet);
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
        let others = FlowClass::ALL.into_iter().filter(|&other| other != class);
        own.iter().take(place).all(may_pass)
            && others
                .map(|other| &self.queues[other as usize])
                .all(|queue| queue.iter().take_while(|other| other.order < waiting.order).all(may_pass))
    }

    /// Returns the credits that a TLP has consumed.
    pub fn refund(&mut self, Summary { class, credits }: Summary) {
        self.credits[class as usize].refund(credits);
        self.stuck_before = 0;
    }

    /// Adds credits of `class` that an UpdateFC brings at `at`.
    pub fn receive(&mut self, class: FlowClass, at: Time, credits: Credits) {
        self.credits[class as usize].receive(at, credits);
    }

    /// Credits of `class` available or in flight, to check that none is lost.
    pub fn outstanding(&self, class: FlowClass) -> Option<Credits> {
        self.credits[class as usize].outstanding()
    }

    /// When the first UpdateFC that arrives after `now` takes effect.
    pub fn next_credit(&self, now: Time) -> Option<Time> {
        self.credits.iter().filter_map(|account| account.next(now)).min()
    }

    /// Discards all state when the link goes down at `now`. Passes every packet to `free`.
    pub fn clear(&mut self, now: Time, mut free: impl FnMut(PacketId)) {
        for queue in &mut self.queues {
            queue.drain(..).for_each(|waiting| free(waiting.packet));
        }
        (self.waiting, self.arrivals, self.stuck_before) = (0, 0, 0);
        self.wake = None;
        self.note_starvation(now, false);
        self.credits.iter_mut().for_each(CreditAccount::clear);
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

    /// A TLP has to wait from `now` on, or none any more.
    pub fn note_starvation(&mut self, now: Time, starved: bool) {
        if starved {
            self.starved.begin(now)
        } else {
            self.starved.end(now)
        }
        let lacks = if starved { self.lacked_by_oldest() } else { None };
        if lacks != self.lacks {
            let index = |credits: Lacked| Lacked::ALL.iter().position(|&known| known == credits);
            if let Some(before) = self.lacks.and_then(index) {
                self.lacked[before].end(now);
            }
            if let Some(after) = lacks.and_then(index) {
                self.lacked[after].begin(now);
            }
            self.lacks = lacks;
        }
    }

    /// The credits that the oldest waiting TLP lacks; `None` if it waits for something else.
    fn lacked_by_oldest(&self) -> Option<Lacked> {
        let first = |class: FlowClass| Some((self.queues[class.index()].front()?, class));
        let (oldest, class) =
            FlowClass::ALL.into_iter().filter_map(first).min_by_key(|(waiting, _)| waiting.order)?;
        let account = &self.credits[class.index()];
        let lacks = !account.covers(oldest.credits);
        lacks.then(|| if account.is_out_of_headers() { Lacked::Header(class) } else { Lacked::Data(class) })
    }

    /// How long a TLP has waited for credits, replay space or an older TLP, up to `now`.
    pub fn starved(&self, now: Time) -> Duration {
        self.starved.until(now)
    }

    /// How long the oldest waiting TLP has lacked credits, up to `now`, in the order of [`Lacked`].
    pub fn lacked(&self, now: Time) -> [Duration; Lacked::ALL.len()] {
        self.lacked.each_ref().map(|wait| wait.until(now))
    }
}
