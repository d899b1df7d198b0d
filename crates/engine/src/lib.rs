//! The engine of a discrete-event simulation: clock, events, tasks, randomness, statistics, traces.
//!
//! Hardware is a [`World`]: state that reacts to events. Software and firmware are tasks, written as straight-line
//! programs. Both run in a [`Simulation`]:
//!
//! ```
//! use engine::{Completer, Scheduler, Simulation, World, oneshot};
//! use units::Duration;
//!
//! /// Memory with one latency, and the reads that are under way.
//! #[derive(Default)]
//! struct Memory(Vec<Completer<u64>>);
//! enum Event { Done }
//!
//! impl World for Memory {
//!     type Event = Event;
//!     fn handle(&mut self, Event::Done: Event, _: &mut Scheduler<Event>) {
//!         self.0.remove(0).complete(42);
//!     }
//! }
//!
//! let simulation = Simulation::new(Memory::default());
//! let handle = simulation.handle();
//! let program = async move {
//!     handle.sleep(Duration::from_ns(10)).await;
//!     let read = handle.with(|memory, scheduler| {
//!         let (completer, completion) = oneshot();
//!         memory.0.push(completer);
//!         scheduler.after(Duration::from_ns(80), Event::Done);
//!         completion
//!     });
//!     (read.await, handle.now())
//! };
//! let (data, end) = simulation.block_on(program).unwrap();
//! assert_eq!((data, end.as_ps()), (Ok(42), 90_000));
//! ```
//!
//! # Determinism
//! The same program with the same seed does the same things at the same times, on every machine:
//!
//! 1. Events and timers are processed in order of time; at the same time, in the order of scheduling. World events and
//!    task timers share one order.
//! 2. After each event or timer, every task that it made ready runs until it waits again, before the next event, even
//!    one for the same instant. Tasks run in wake-up order. A task woken twice before its turn runs once.
//! 3. Tasks waiting for a [`Notify`] are served in the order in which they started to wait.
//! 4. A wake-up through a waker other than the task's own (a combinator such as `FuturesUnordered`) takes effect at the
//!    executor's next step, behind the wake-ups of the current step.
//! 5. Spawned and aborted tasks take their turn in the same queue as woken ones.
//! 6. Random numbers come from [`rng::Seed`], with one generator for each component, by name.
//!
//! Models must keep what the engine cannot enforce: no wall clock, no iteration over unordered maps, no object
//! addresses as keys, no threads within a simulation. Independent simulations may run on any number of threads.
//!
//! # Cost
//! In steady state nothing is allocated for an event, a sleep, a wake-up, or a oneshot from [`Oneshots`]
//! (`tests/allocation.rs` checks this). A separate [`oneshot`] is one allocation; starting a task is four. `benches/`
//! measures times.

mod busy;
mod epoch;
mod notify;
mod oneshot;
mod queue;
mod simulation;
mod task;
mod wheel;

pub mod rng;
pub mod steady;
pub mod trace;

pub use busy::{Busy, WaitTime};
pub use epoch::Epoch;
pub use notify::Notify;
pub use oneshot::{Completer, Completion, Oneshots, oneshot};
pub use queue::{EventKey, Scheduler};
pub use rng::{Rng, Seed};
pub use simulation::{Deadlock, Handle, Simulation, Sleep, World};
pub use steady::SteadyMean;
pub use task::{Cancelled, JoinHandle, either, yield_now};
pub use trace::Trace;
