//! Events, tasks and their queue.

mod allocation;
mod notify;
mod queue;
mod tasks;
