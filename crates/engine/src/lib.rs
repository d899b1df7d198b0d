//! The engine of a discrete-event simulation.
pub mod oneshot;
pub mod queue;
pub mod simulation;
pub mod sync;
pub mod task;
mod wheel;
pub use oneshot::{Completer, Completion, oneshot};
pub use queue::{EventKey, Scheduler};
pub use simulation::{Deadlock, Handle, Simulation, Sleep, World};
pub use sync::{
    Mutex, MutexGuard, Notify, Receiver, Semaphore, SendError, Sender, Signal, channel, unbounded,
};
pub use task::{Cancelled, JoinHandle, yield_now};
