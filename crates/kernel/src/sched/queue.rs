//! The tasks that wait for one core.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Task;

/// Class (real-time, fair, idle), order within it, and the task's number so that no two are equal.
type Key = (u8, u64, u32);

/// A core's run queue, most urgent first.
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

    /// The virtual runtime from which newcomers start.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn insert(&mut self, task: Rc<Task>) {
        self.tasks.insert(task.key(), task);
    }

    pub fn remove(&mut self, task: &Task) -> bool {
        self.tasks.remove(&task.key()).is_some()
    }

    pub fn take_first(&mut self) -> Option<Rc<Task>> {
        let task = self.tasks.pop_first()?.1;
        if task.is_fair() {
            self.floor = self.floor.max(task.vruntime.get());
        }
        Some(task)
    }

    /// Whether one of those who wait is such.
    pub fn any(&self, such: impl Fn(&Task) -> bool) -> bool {
        self.tasks.values().any(|task| such(task))
    }

    /// Takes the least urgent of those that `may` go.
    pub fn take_last(&mut self, may: impl Fn(&Task) -> bool) -> Option<Rc<Task>> {
        let key = self.tasks.iter().rev().find(|(_, task)| may(task)).map(|(&key, _)| key)?;
        self.tasks.remove(&key)
    }

    /// Whether somebody waits who is at least as urgent in kind.
    pub fn has_rival_of(&self, current: &Task) -> bool {
        self.tasks.keys().next().is_some_and(|&(class, order, _)| {
            let mine = current.key();
            class < mine.0 || class == mine.0 && (class != 0 || order < mine.1)
        })
    }
}
