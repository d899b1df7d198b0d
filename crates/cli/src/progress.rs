//! Progress on the standard error stream: a bar if somebody watches, a word about what takes very long in any case.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearfar::progress::{Progress, Silent};
use nearfar::trace::human;

use crate::Common;
use crate::output::complain;

/// What is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// When an estimate of what is left says something.
const ESTIMATE_AFTER: Duration = Duration::from_secs(5);
/// What takes longer deserves a word, whether a bar is watched or not.
const LONG: Duration = Duration::from_secs(120);

/// A bar with what is done at the moment, on a terminal.
pub struct Bar {
    is_watched: bool,
    work: Mutex<Option<Work>>,
}

/// A piece of work under way.
struct Work {
    bar: ProgressBar,
    began: Instant,
    /// The bar counts simulated time, not steps.
    counts_time: bool,
    warned: bool,
    /// What all steps weigh, and those that are done; nothing where they are alike.
    weight: Option<(u64, u64)>,
}

/// A bar where the standard error stream is a terminal, after two seconds; nothing at all if asked to be quiet.
pub fn of(common: &Common) -> Box<dyn Progress> {
    match common.quiet {
        true => Box::new(Silent),
        false => Box::new(Bar { is_watched: std::io::stderr().is_terminal(), work: Mutex::new(None) }),
    }
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

    /// How long the steps that are left will take, by what they weigh.
    fn seconds_left(&self) -> Option<f64> {
        let (total, gone) = self.weight?;
        let took = self.began.elapsed().as_secs_f64();
        match gone {
            0 => nearfar::cache::speed().map(|speed| total as f64 / speed),
            gone => Some(took * total.saturating_sub(gone) as f64 / gone as f64),
        }
    }

    /// Says once how long it will take, if that is long.
    fn warn(&mut self, passed: units::Duration, of: Option<units::Duration>) {
        let took = self.began.elapsed();
        let message = match of {
            _ if self.warned || took < ESTIMATE_AFTER || passed.is_zero() => return,
            Some(of) => {
                let left = took.as_secs_f64() * (of.as_ns_f64() / passed.as_ns_f64() - 1.0).max(0.0);
                if left < LONG.as_secs_f64() {
                    return;
                }
                let [left, passed, of] = [minutes(left), human(passed), human(of)];
                format!("note: about {left} left: {passed} of {of} simulated in {} s", took.as_secs())
            }
            None if took < LONG => return,
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

/// A time that somebody waits.
fn minutes(seconds: f64) -> String {
    match seconds / 60.0 {
        minutes if minutes < 90.0 => format!("{minutes:.0} min"),
        minutes => format!("{:.0} h", minutes / 60.0),
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, steps: u64) {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        bar.set_prefix(what.to_owned());
        let work = Work { bar, began: Instant::now(), counts_time: false, warned: false, weight: None };
        work.style("{prefix} {bar:30} {pos}/{len}, {eta} left  {wide_msg}");
        if self.is_watched {
            let bar = work.bar.downgrade();
            thread::spawn(move || {
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
            work.weight = Some((total, 0));
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
            if let Some((_, gone)) = slot.as_mut().and_then(|work| work.weight.as_mut()) {
                *gone += weight;
            }
        });
    }

    fn step(&self, what: &str) {
        self.with(|slot| {
            if let Some(work) = slot.as_mut().filter(|work| !work.counts_time) {
                work.bar.set_message(match work.seconds_left() {
                    Some(left) if left < 90.0 => format!(", {left:.0} s left  {what}"),
                    Some(left) => format!(", {} left  {what}", minutes(left)),
                    None => what.to_owned(),
                });
                work.bar.inc(1);
            }
        });
    }

    fn simulated(&self, passed: units::Duration, of: Option<units::Duration>) {
        self.with(|slot| {
            let Some(work) = slot else { return };
            if !work.counts_time {
                work.counts_time = true;
                work.style(match of {
                    Some(_) => "{prefix} {bar:30} {msg}, {eta} left",
                    None => "{prefix} {spinner} {msg}, {elapsed} so far",
                });
                work.bar.set_length(of.map_or(0, units::Duration::as_ps));
                // What came before, booting, is no measure of how fast time passes.
                work.bar.reset_eta();
            }
            work.bar.set_position(passed.as_ps());
            work.bar.set_message(match of {
                Some(of) => format!("{} of {} simulated", human(passed), human(of)),
                None => format!("{} simulated", human(passed)),
            });
            work.warn(passed, of);
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(work) = slot.take() {
                let took = work.began.elapsed();
                // What was over at once says little about speed.
                if let Some((_, gone)) = work.weight.filter(|&(_, gone)| gone > 0 && took > PATIENCE) {
                    nearfar::cache::keep_speed(gone as f64 / took.as_secs_f64());
                }
                work.bar.finish_and_clear();
            }
        });
    }
}
