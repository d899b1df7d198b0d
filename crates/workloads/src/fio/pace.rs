//! When a job may submit requests: limits of its rate, pauses, and rates that it must reach.

use units::{Duration, Time};

use super::options::{JobOptions, RateProcess};
use super::pattern::{Chooser, NextRequest, RequestKind};
use super::tally::RequestTally;
use super::values::Each;
use crate::program::{Failure, KEPT_PACE};

/// Limits of a job's rate.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// Bytes or requests per second, and which.
    limit: Option<(Each<u64>, bool)>,
    is_random: bool,
    /// When the next request of each kind may be submitted.
    due: [Time; 3],
    /// When the current cycle began, with bytes and requests of each kind since then.
    cycle: Time,
    done: [(u64, u64); 3],
    /// Requests until the next pause.
    until_pause: u32,
}

/// A day: more than any run takes.
const LONGEST: Duration = Duration::from_ms(86_400_000);

/// The time that `amount` takes at `rate` per second.
fn time(amount: u64, rate: u64) -> Duration {
    let ps = u128::from(amount) * 1_000_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ps).map_or(LONGEST, |ps| Duration::from_ps(ps).min(LONGEST))
}

/// The option that limits a job's rate, if its processes together have kept to it.
pub(super) fn kept(options: &JobOptions, tally: &RequestTally) -> Option<&'static str> {
    let (option, each) = match (&options.rate, &options.rate_iops) {
        (Some(each), _) => ("--rate", each),
        (None, each) => ("--rate_iops", each.as_ref()?),
    };
    let keeps = |way: RequestKind| {
        let (requests, bytes) = tally.rates(way);
        let asked = each.0[way as usize] as f64 * f64::from(options.numjobs);
        asked > 0.0 && (if option == "--rate" { bytes } else { requests }) >= KEPT_PACE * asked
    };
    RequestKind::ALL.into_iter().filter(|way| options.rw.has(*way)).all(keeps).then_some(option)
}

impl RateLimit {
    pub fn new(options: &JobOptions, began: Time) -> Self {
        let bytes = options.rate.clone().map(|rate| (rate, false));
        Self {
            limit: bytes.or_else(|| options.rate_iops.clone().map(|rate| (rate, true))),
            is_random: options.rate_process == RateProcess::Poisson,
            due: [began; 3],
            cycle: began,
            done: [(0, 0); 3],
            until_pause: options.thinktime_blocks,
        }
    }

    /// Until when to wait with this request.
    pub fn wait(&self, request: &NextRequest, now: Time) -> Option<Time> {
        self.limit.as_ref().map(|_| self.due[request.way as usize]).filter(|due| *due > now)
    }

    /// Of reads and writes, the one that was chosen, or the other if that is due before it: neither waits for the other's rate.
    pub fn sooner(&self, chosen: RequestKind, now: Time) -> RequestKind {
        let other = if chosen == RequestKind::Read { RequestKind::Write } else { RequestKind::Read };
        let [due, others] = [chosen, other].map(|way| self.due[way as usize].max(now));
        if self.limit.is_some() && others < due { other } else { chosen }
    }

    /// Takes account of a request that is submitted. Returns how long to pause after it.
    pub fn submitted(
        &mut self,
        options: &JobOptions,
        request: &NextRequest,
        chooser: &mut Chooser,
    ) -> Option<Duration> {
        let way = request.way as usize;
        if let Some((rate, counts_requests)) = &self.limit {
            let amount = if *counts_requests { 1 } else { request.length };
            // No rate is no limit.
            let mean = if rate.0[way] == 0 { Duration::ZERO } else { time(amount, rate.0[way]) };
            let gap = match self.is_random {
                false => mean,
                // Gaps of a Poisson process are exponentially distributed.
                true => Duration::from_ps((mean.as_ps() as f64 * -(1.0 - chooser.unit()).ln()) as u64),
            };
            self.due[way] += gap;
        }
        self.until_pause -= 1;
        if self.until_pause > 0 {
            return None;
        }
        self.until_pause = options.thinktime_blocks;
        (options.thinktime > Duration::ZERO).then_some(options.thinktime)
    }

    /// Takes account of a request that has ended, and checks the least rates once per cycle.
    pub fn ended(
        &mut self,
        options: &JobOptions,
        (way, bytes): (RequestKind, u64),
        now: Time,
    ) -> Result<(), Failure> {
        let done = &mut self.done[way as usize];
        *done = (done.0 + bytes, done.1 + 1);
        let took = now.since(self.cycle);
        if took < options.rate_cycle || (options.rate_min.is_none() && options.rate_iops_min.is_none()) {
            return Ok(());
        }
        for way in RequestKind::ALL.into_iter().filter(|way| options.rw.has(*way)) {
            let (bytes, requests) = self.done[way as usize];
            let least = |each: &Option<Each<u64>>| each.as_ref().map(|each| each.0[way as usize]);
            for (option, least, got) in [
                ("rate_min", least(&options.rate_min), bytes),
                ("rate_iops_min", least(&options.rate_iops_min), requests),
            ] {
                let got = (got as f64 / took.as_s_f64()) as u64;
                if let Some(least) = least.filter(|least| got < *least) {
                    let name = &options.name;
                    return Err(Failure(format!("fio: {name}: {option}={least}/s not met, only {got}/s")));
                }
            }
        }
        (self.cycle, self.done) = (now, [(0, 0); 3]);
        Ok(())
    }
}
