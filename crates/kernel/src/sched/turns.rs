//! A task's turns on cores.

use std::cell::Cell;

use units::{Duration, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    /// Never run.
    #[default]
    New,
    /// Waiting for an event.
    Blocked,
    /// Waiting for a core.
    Runnable,
    /// On a core.
    Running,
    Ended,
}

/// Whether a task waits for a core or has one, since when, and how often it got one.
#[derive(Default)]
pub(crate) struct TaskTurns {
    state: Cell<State>,
    /// When the last turn began.
    began: Cell<Time>,
    /// Since when it has waited for a core, if it does, and its earlier waiting time.
    waits_since: Cell<Option<Time>>,
    waited: Cell<Duration>,
    /// Whether its turn has to end early.
    is_cut: Cell<bool>,
    switches: Cell<u64>,
    migrations: Cell<u64>,
}

impl TaskTurns {
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// Starts to wait for a core.
    pub fn wait(&self, now: Time) {
        self.state.set(State::Runnable);
        self.waited.set(self.waited(now));
        self.waits_since.set(Some(now));
    }

    /// Gets a core.
    pub fn begin(&self, now: Time) {
        self.state.set(State::Running);
        self.waited.set(self.waited(now));
        self.waits_since.set(None);
        self.began.set(now);
        self.is_cut.set(false);
    }

    /// Gives its core up.
    pub fn end(&self, state: State) {
        self.state.set(state);
    }

    /// When the last turn began.
    pub fn began(&self) -> Time {
        self.began.get()
    }

    /// Total time waited for a core (Linux: the second number of /proc/PID/schedstat).
    pub fn waited(&self, now: Time) -> Duration {
        self.waited.get() + self.waits_since.get().map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Its turn has to end early (Linux: `set_tsk_need_resched`).
    pub fn cut(&self) {
        self.is_cut.set(true);
    }

    /// Whether its turn has to end early.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Its core switched to it from another task.
    pub fn switched(&self) {
        self.switches.set(self.switches.get() + 1);
    }

    /// It moved to another core.
    pub fn migrated(&self) {
        self.migrations.set(self.migrations.get() + 1);
    }

    /// Context switches from another task to this one.
    pub fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Moves to another core.
    pub fn migrations(&self) -> u64 {
        self.migrations.get()
    }
}
