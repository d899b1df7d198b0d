//! Run queue of a core.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Task;

/// Sort key: class (real-time, fair, idle), order within it, and the task's ID to make keys unique.
type Key = (u8, u64, u32);

/// Urgency, lower first: class, and the order among real-time tasks.
pub(crate) type Urgency = (u8, u64);

/// Urgency for a sort key: all fair tasks are equal, and so are all idle ones.
pub(super) fn urgency(class: u8, order: u64) -> Urgency {
    (class, if class == 0 { order } else { 0 })
}

/// Run queue of a core, most urgent task first.
#[derive(Default)]
pub(crate) struct RunQueue {
    tasks: BTreeMap<Key, Rc<Task>>,
    floor: u64,
}

impl RunQueue {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Virtual runtime at which newcomers start.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn insert(&mut self, task: Rc<Task>) {
        self.tasks.insert(task.key(), task);
    }

    pub fn remove(&mut self, task: &Task) -> bool {
        self.tasks.remove(&task.key()).is_some()
    }

    /// Raises the floor to the lowest virtual runtime of waiting and `running` tasks.
    pub fn raise_floor(&mut self, running: Option<u64>) {
        let fair = self.tasks.range((1, 0, 0)..(2, 0, 0)).next();
        let waiting = fair.map(|(&(_, vruntime, _), _)| vruntime);
        let least = waiting.into_iter().chain(running).min();
        self.floor = self.floor.max(least.unwrap_or_default());
    }

    pub fn take_first(&mut self) -> Option<Rc<Task>> {
        Some(self.tasks.pop_first()?.1)
    }

    /// Whether any waiting task matches.
    pub fn any(&self, such: impl Fn(&Task) -> bool) -> bool {
        self.tasks.values().any(|task| such(task))
    }

    /// Urgency of the first waiting task.
    pub fn urgency(&self) -> Option<Urgency> {
        self.tasks.keys().next().map(|&(class, order, _)| urgency(class, order))
    }

    /// Urgency of the first real-time task that `may` move.
    pub fn real_time(&self, may: impl Fn(&Task) -> bool) -> Option<Urgency> {
        let real_time = self.tasks.range(..(1, 0, 0));
        real_time.map(|(_, task)| task).find(|task| may(task)).map(|task| task.urgency())
    }

    /// Removes a task of the most urgent class that `may` move: the next one of the real-time tasks, or the last one
    /// of others.
    pub fn take_for_other(&mut self, may: impl Fn(&Task) -> bool) -> Option<Rc<Task>> {
        let first = self.tasks.iter().find(|(_, task)| may(task)).map(|(&key, _)| key)?;
        let key = match first.0 {
            0 => first,
            class => *self.tasks.range((class, 0, 0)..(class + 1, 0, 0)).rev().find(|(_, task)| may(task))?.0,
        };
        self.tasks.remove(&key)
    }

    /// Whether a task of at least the same class waits.
    pub fn has_rival_of(&self, current: &Task) -> bool {
        self.tasks.keys().next().is_some_and(|&(class, order, _)| {
            let mine = current.key();
            class < mine.0 || class == mine.0 && (class != 0 || order < mine.1)
        })
    }
}
