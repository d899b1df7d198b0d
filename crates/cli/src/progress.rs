//! Progress on standard error: a bar on terminals, and a note about very long runs in any case.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearfar::progress::{PlannedEnd, Progress};
use nearfar::trace::human;

use crate::Common;
use crate::output::complain;

/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum run time before an estimate is shown.
const ESTIMATE_AFTER: Duration = Duration::from_secs(5);
/// Work of unknown length prints a note after this.
const UNKNOWN: Duration = Duration::from_secs(25);
/// Longer work prints a note even without a bar.
const LONG: Duration = Duration::from_secs(120);

/// A progress bar on a terminal.
pub struct Bar {
    is_watched: bool,
    work: Mutex<Option<Work>>,
}

struct Work {
    bar: ProgressBar,
    began: Instant,
    /// Whether the bar counts simulated time instead of steps.
    counts_time: bool,
    warned: bool,
    /// When something was done last.
    moved: Arc<Mutex<Instant>>,
    /// For steps of different cost.
    estimate: Option<Estimate>,
}

/// Estimates the remaining time from the steps' costs.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    /// Total cost, and the cost of finished steps.
    total: u64,
    gone: u64,
    /// Cost per second in the previous run.
    usual: Option<f64>,
}

impl Estimate {
    /// Seconds for the remaining steps, `took` seconds after the start.
    fn seconds_left(&self, took: f64) -> Option<f64> {
        /// Weight of the previous run's speed, in seconds: too few steps are done before then to tell the current
        /// speed.
        const USUAL: f64 = 5.0;
        let (seen, time) = match self.usual {
            Some(speed) => (self.gone as f64 + speed * USUAL, took + USUAL),
            None => (self.gone as f64, took),
        };
        let left = self.total.saturating_sub(self.gone) as f64;
        (seen > 0.0).then(|| left * time / seen)
    }
}

/// A bar if standard error is a terminal and `quiet` was not asked for. Work that takes very long is told of in any
/// case.
pub fn of(common: &Common) -> Box<dyn Progress> {
    let is_watched = !common.quiet && std::io::stderr().is_terminal() && !crate::colour::is_dumb();
    Box::new(Bar { is_watched, work: Mutex::new(None) })
}

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<Work>)) {
        if let Ok(mut work) = self.work.lock() {
            act(&mut work);
        }
    }
}

impl Work {
    fn style(&self, template: &str) {
        self.bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
    }

    fn note_move(&self) {
        if let Ok(mut moved) = self.moved.lock() {
            *moved = Instant::now();
        }
    }

    fn seconds_left(&self) -> Option<f64> {
        self.estimate?.seconds_left(self.began.elapsed().as_secs_f64())
    }

    /// Prints the expected duration once, if it is long.
    fn warn(&mut self, passed: units::Duration, end: Option<&PlannedEnd>) {
        let took = self.began.elapsed();
        let message = match end {
            _ if self.warned || took < ESTIMATE_AFTER || passed.is_zero() => return,
            Some(PlannedEnd { after: of, by }) if passed >= *of => {
                if took < UNKNOWN {
                    return;
                }
                let ([passed, of], took) = ([passed, *of].map(human), took.as_secs());
                format!(
                    "note: {passed} simulated in {took} s, more than the {of} that `{by}` asks for: what it began is not done"
                )
            }
            Some(PlannedEnd { after: of, by }) => {
                let left = took.as_secs_f64() * (of.as_ns_f64() / passed.as_ns_f64() - 1.0).max(0.0);
                if left < LONG.as_secs_f64() {
                    return;
                }
                let [left, passed, of] = [minutes(left), human(passed), human(*of)];
                let took = took.as_secs();
                format!("note: about {left} left: {passed} of {of} simulated in {took} s, as `{by}` asks")
            }
            None if took < UNKNOWN => return,
            None => {
                let (passed, took) = (human(passed), minutes(took.as_secs_f64()));
                format!(
                    "note: {passed} simulated in {took}; the scenario's programs do not say when they end"
                )
            }
        };
        self.warned = true;
        self.bar.suspend(|| complain(&message));
    }
}

/// A name from a file, in a line that is drawn again and again.
fn shown_line(name: &str) -> String {
    files::shown(name).replace(['\n', '\t'], " ")
}

/// A duration for humans.
fn minutes(seconds: f64) -> String {
    match seconds / 60.0 {
        _ if seconds < 90.0 => format!("{seconds:.0} s"),
        minutes if minutes < 90.0 => format!("{minutes:.0} min"),
        minutes => format!("{:.0} h", minutes / 60.0),
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, steps: u64) {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        bar.set_prefix(shown_line(what));
        let moved = Arc::new(Mutex::new(Instant::now()));
        let has_moved = Arc::downgrade(&moved);
        let name = shown_line(what);
        // Where none can be started, nothing is said.
        let _ = thread::Builder::new().spawn(move || {
            let stands = |moved: Arc<Mutex<Instant>>| moved.lock().is_ok_and(|at| at.elapsed() > UNKNOWN);
            while let Some(moved) = has_moved.upgrade() {
                if stands(moved) {
                    let long = UNKNOWN.as_secs();
                    complain(&format!(
                        "note: {name}: nothing to be seen for {long} s, but it is at work; fewer hosts, connections or bytes take less"
                    ));
                    break;
                }
                thread::sleep(Duration::from_secs(1));
            }
        });
        let work =
            Work { bar, began: Instant::now(), counts_time: false, warned: false, moved, estimate: None };
        work.style("{prefix} {bar:30} {pos}/{len}, {eta} left  {wide_msg}");
        if self.is_watched {
            let bar = work.bar.downgrade();
            // Where none can be started, there is no bar.
            let _ = thread::Builder::new().spawn(move || {
                thread::sleep(PATIENCE);
                if let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(Duration::from_millis(200));
                }
            });
        }
        self.with(|slot| *slot = Some(work));
    }

    fn weigh(&self, total: u64) {
        self.with(|slot| {
            let Some(work) = slot else { return };
            work.began = Instant::now();
            work.estimate = Some(Estimate { total, gone: 0, usual: nearfar::cache::speed() });
            work.style("{prefix} {bar:30} {pos}/{len}{msg}");
            let Some(left) = work.seconds_left() else { return };
            if left >= LONG.as_secs_f64() {
                work.warned = true;
                complain(&format!("note: about {}, if it goes as fast as last time", minutes(left)));
            }
        });
    }

    fn gone(&self, weight: u64) {
        self.with(|slot| {
            if let Some(estimate) = slot.as_mut().and_then(|work| work.estimate.as_mut()) {
                estimate.gone += weight;
            }
        });
    }

    fn step(&self, what: &str) {
        let what = shown_line(what);
        self.with(|slot| {
            if let Some(work) = slot.as_mut().filter(|work| !work.counts_time) {
                work.note_move();
                work.bar.set_message(match work.seconds_left() {
                    Some(left) if left < 90.0 => format!(", {left:.0} s left  {what}"),
                    Some(left) => format!(", {} left  {what}", minutes(left)),
                    None => what,
                });
                work.bar.inc(1);
            }
        });
    }

    fn simulated(&self, passed: units::Duration, end: Option<&PlannedEnd>) {
        let of = end.map(|end| end.after);
        self.with(|slot| {
            let Some(work) = slot else { return };
            work.note_move();
            if !work.counts_time {
                work.counts_time = true;
                work.style(match of {
                    Some(_) => "{prefix} {bar:30} {msg}, {eta} left",
                    None => "{prefix} {spinner} {msg}, {elapsed} so far",
                });
                work.bar.set_length(of.map_or(0, units::Duration::as_ps));
                // Booting says nothing about the speed of simulation.
                work.bar.reset_eta();
            }
            work.bar.set_position(passed.as_ps());
            work.bar.set_message(match of {
                Some(of) => format!("{} of {} simulated", human(passed), human(of)),
                None => format!("{} simulated", human(passed)),
            });
            work.warn(passed, end);
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(work) = slot.take() {
                let took = work.began.elapsed();
                // Very short work says little about speed.
                if let Some(done) = work.estimate.filter(|done| done.gone > 0 && took > PATIENCE) {
                    nearfar::cache::keep_speed(done.gone as f64 / took.as_secs_f64());
                }
                work.bar.finish_and_clear();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    /// Simulates several threads working on steps of different costs, each up to `error` times slower or faster than
    /// estimated. Returns the estimate and the true remaining time at each step's end.
    fn worked(threads: usize, steps: u64, error: f64, usual: Option<f64>) -> Vec<(Option<f64>, f64)> {
        const PER_SECOND: f64 = 1e5;
        // Pseudo-random, but the same in each run.
        let any = |n: u64, of: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33 & (of - 1);
        let weights: Vec<u64> = (1..=steps).map(|n| 20_000 + 1000 * any(n, 256)).collect();
        let seconds = |n: usize| {
            let off = any(7 * n as u64 + 3, 1024) as f64 / 511.5 - 1.0;
            weights[n] as f64 / PER_SECOND * error.powf(off)
        };
        let (mut free, mut ends) = (vec![0.0; threads], Vec::new());
        for (n, &weight) in weights.iter().enumerate() {
            let next = (0..threads).min_by(|&a, &b| f64::total_cmp(&free[a], &free[b])).unwrap();
            free[next] += seconds(n);
            ends.push((free[next], weight));
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let end = ends.last().unwrap().0;
        let mut estimate = Estimate {
            total: weights.iter().sum(),
            gone: 0,
            usual: usual.map(|x| x * PER_SECOND * threads as f64),
        };
        let mut told = vec![(estimate.seconds_left(0.0), end)];
        for (at, weight) in ends {
            estimate.gone += weight;
            told.push((estimate.seconds_left(at), end - at));
        }
        told
    }

    #[test]
    fn an_estimate_holds_within_a_factor_of_two() {
        for threads in [1, 2, 8] {
            // As fast as in the previous run, or a third faster or slower.
            for usual in [1.0, 0.75, 1.33] {
                let told = worked(threads, 60 * threads as u64, 1.6, Some(usual));
                let whole = told[0].1;
                // Estimates near the end do not matter.
                for (estimate, left) in told.into_iter().filter(|(_, left)| *left > whole / 20.0) {
                    let ratio = estimate.unwrap() / left;
                    assert!(
                        (0.5..2.0).contains(&ratio),
                        "{threads} threads, {usual}: {ratio} with {left} s left"
                    );
                }
            }
        }
    }

    #[test]
    fn the_first_time_it_holds_once_a_tenth_is_done() {
        let told = worked(2, 120, 1.6, None);
        assert_eq!(told[0].0, None, "nobody knows");
        let whole = told[0].1;
        let judged = told.into_iter().filter(|(_, left)| (whole / 20.0..0.9 * whole).contains(left));
        for (estimate, left) in judged {
            assert!((0.5..2.0).contains(&(estimate.unwrap() / left)), "{estimate:?} with {left} s left");
        }
    }

    #[test]
    fn what_takes_longer_than_last_time_is_believed() {
        let estimate = Estimate { total: 1000, gone: 0, usual: Some(100.0) };
        assert_eq!(estimate.seconds_left(0.0), Some(10.0));
        assert!(estimate.seconds_left(60.0) > Some(100.0), "nothing is done after a minute");
    }
}
