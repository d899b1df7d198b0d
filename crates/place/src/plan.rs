//! All that was asked for, as writes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use survey::NumberSet;

use crate::guests::GuestPlacer;
use crate::queues;
use crate::root::HostRoot;
use crate::view::HostView;

/// What is to be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedFor {
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// Processes by name or number: they go to the node of the first interface.
    pub processes: Vec<String>,
    /// Whether guests, their vhost threads and I/O threads are.
    pub guests: bool,
}

/// How a value is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetForm {
    /// `0-3,8`.
    List,
    /// `0000010f`.
    Mask,
    /// A number.
    Number,
}

/// What a write goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteTarget {
    /// A file of /proc or /sys.
    File {
        /// Its path below the root.
        path: String,
        /// How its value is spelled.
        form: SetForm,
    },
    /// The CPUs that a thread may use.
    Thread {
        /// Its process.
        process: u32,
        /// Its number.
        thread: u32,
        /// When it was started, in ticks.
        started: u64,
    },
}

/// A write with what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWrite {
    /// Where.
    pub target: WriteTarget,
    /// The value as it is.
    pub before: String,
    /// The value as it will be.
    pub after: String,
    /// Why.
    pub why: String,
}

/// The writes of a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// In this order.
    pub writes: Vec<PlannedWrite>,
    /// What is as it should be, or cannot be placed.
    pub notes: Vec<String>,
    /// How many values are as they should be.
    pub kept: usize,
}

impl WriteTarget {
    /// The value as it is now.
    pub(crate) fn read(&self, root: &HostRoot) -> std::io::Result<String> {
        match self {
            Self::File { path, .. } => {
                root.of_kernel(path)?;
                root.read(path)
            }
            Self::Thread { process, thread, started } => {
                let gone = || std::io::Error::new(std::io::ErrorKind::NotFound, "the thread has ended");
                if root.started(*process, *thread) != Some(*started) {
                    return Err(gone());
                }
                root.allowed(*process, *thread).ok_or_else(gone)
            }
        }
    }

    pub(crate) fn write(&self, root: &HostRoot, value: &str) -> std::io::Result<()> {
        match self {
            Self::File { path, .. } => root.write(path, value),
            Self::Thread { process, thread, .. } => {
                let wrong = || {
                    std::io::Error::new(
                        std::io::ErrorKind::InvalidData,
                        format!("`{value}` is no list of CPUs"),
                    )
                };
                root.allow(*process, *thread, &value.parse().map_err(|_| wrong())?)
            }
        }
    }

    /// Whether two values are the same, however spelled.
    pub(crate) fn same(&self, one: &str, other: &str) -> bool {
        let set = |text: &str| match self {
            Self::File { form: SetForm::Mask, .. } => NumberSet::from_mask(text),
            Self::File { form: SetForm::Number, .. } => None,
            _ => text.parse::<NumberSet>().ok(),
        };
        one.trim() == other.trim() || set(one).is_some_and(|set_one| Some(set_one) == set(other))
    }
}

impl std::fmt::Display for WriteTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, .. } => f.write_str(path),
            Self::Thread { process, thread, .. } if process == thread => {
                write!(f, "CPUs of process {process}")
            }
            Self::Thread { process, thread, .. } => write!(f, "CPUs of thread {thread} of process {process}"),
        }
    }
}

impl HostPlan {
    fn add(&mut self, root: &HostRoot, target: WriteTarget, after: &str, why: &str) {
        match target.read(root) {
            Ok(before) if target.same(&before, after) => self.kept += 1,
            Ok(before) => {
                self.writes.push(PlannedWrite {
                    target,
                    before,
                    after: after.to_owned(),
                    why: why.to_owned(),
                });
            }
            Err(error) => self.notes.push(format!("{target} cannot be read, and is left: {error}")),
        }
    }

    /// A value of a file.
    pub(crate) fn file(&mut self, view: &HostView, path: &str, form: SetForm, after: &str, why: &str) {
        self.add(&view.root, WriteTarget::File { path: path.to_owned(), form }, after, why);
    }

    /// CPUs of a thread.
    pub(crate) fn thread(&mut self, view: &HostView, (process, thread): (u32, u32), node: u32, why: &str) {
        // One that ends meanwhile needs no place.
        let Some(started) = view.root.started(process, thread) else { return };
        let target = WriteTarget::Thread { process, thread, started };
        self.add(&view.root, target, &view.set_of(node).to_string(), why);
    }
}

/// Plans all that was asked for; `placer` has decided where guests run.
///
/// # Errors
/// If something that was asked for is not there.
pub fn plan(view: &HostView, asked: &AskedFor, placer: &GuestPlacer) -> Result<HostPlan, String> {
    let mut plan = HostPlan::default();
    for interface in &asked.interfaces {
        let is_name = !interface.is_empty() && !interface.contains('/') && !interface.starts_with('.');
        if !is_name || !view.root.exists(&format!("/sys/class/net/{interface}")) {
            let all = view.root.list("/sys/class/net");
            let more = if all.len() > 12 { format!(" and {} more", all.len() - 12) } else { String::new() };
            let some = all[..all.len().min(12)].join(", ");
            return Err(format!("there is no network interface `{interface}`; there are {some}{more}"));
        }
        queues::place(view, interface, &mut plan);
    }
    let node = asked.interfaces.iter().find_map(|interface| view.node_of(interface));
    for wanted in &asked.processes {
        let found = view.processes(wanted);
        if found.is_empty() {
            return Err(format!("there is no process `{wanted}`"));
        }
        let Some(node) = node else {
            let help = "name the interface that it uses, whose node is known";
            return Err(format!("no node is known to place `{wanted}` at: {help}"));
        };
        for process in found {
            for thread in view.numbers(&format!("/proc/{process}/task")) {
                let why = format!("`{wanted}` to node {node}, where {} is", asked.interfaces.join(", "));
                plan.thread(view, (process, thread), node, &why);
            }
            let elsewhere = pages_elsewhere(view, process, node);
            if elsewhere > 0 {
                plan.notes.push(format!(
                    "{elsewhere} pages of `{wanted}` ({process}) stay at other nodes: `migratepages {process} all {node}` moves them"
                ));
            }
        }
    }
    if asked.guests {
        placer.writes(view, &mut plan);
    }
    if !view.processes("irqbalance").is_empty()
        && plan.writes.iter().any(|write| write.target.to_string().contains("/irq/"))
    {
        plan.notes.push("irqbalance runs and will move these interrupts again: stop it, or start it with --banirq for each".into());
    }
    let mut seen = BTreeSet::new();
    plan.writes.retain(|write| seen.insert(write.target.to_string()));
    Ok(plan)
}

fn pages_elsewhere(view: &HostView, process: u32, node: u32) -> u64 {
    let maps = view.root.text(&format!("/proc/{process}/numa_maps")).unwrap_or_default();
    let of_nodes = maps.split_whitespace().filter_map(|word| {
        let (number, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((number.parse::<u32>().ok()?, pages.parse::<u64>().ok()?))
    });
    of_nodes.filter(|(number, _)| *number != node).fold(0, |sum, (_, pages)| sum.saturating_add(pages))
}
