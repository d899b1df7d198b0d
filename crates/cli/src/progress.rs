//! Progress bars on the standard error stream, if somebody watches it.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use nearfar::progress::{Progress, Silent};

use crate::Common;

/// A bar with what is done at the moment.
#[derive(Default)]
pub struct Bar(Mutex<Option<ProgressBar>>);

/// A bar where the standard error stream is a terminal, nothing otherwise or if asked to be quiet.
pub fn of(common: &Common) -> Box<dyn Progress> {
    if common.quiet || !std::io::stderr().is_terminal() { Box::new(Silent) } else { Box::<Bar>::default() }
}

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        if let Ok(mut bar) = self.0.lock() {
            act(&mut bar);
        }
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, steps: u64) {
        let style = "{prefix} {bar:30} {pos}/{len}, {eta} left  {wide_msg}";
        let bar = ProgressBar::new(steps).with_prefix(what.to_owned());
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        self.with(|slot| *slot = Some(bar));
    }

    fn step(&self, what: &str) {
        self.with(|slot| {
            if let Some(bar) = slot {
                bar.set_message(what.to_owned());
                bar.inc(1);
            }
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }
}
