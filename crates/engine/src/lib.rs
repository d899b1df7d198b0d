//! The engine of a discrete-event simulation: clock, events, tasks, randomness, statistics, traces.
//!
//! Hardware is a [`World`]: state that reacts to events. Software and firmware are tasks, written as
//! the straight-line programs they are. Both live in a [`Simulation`]:
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
//! 1. Events and timers happen in order of time; at the same time, in the order in which they were
//!    scheduled. World events and task timers share that one order.
//! 2. After each event or timer, every task that it made ready runs until it waits again, before the
//!    next event, even one for the same instant. Tasks run in the order in which they were woken. A
//!    task that is woken twice before its turn runs once.
//! 3. Whoever waits for a [`Notify`] is served in the order in which the waiting began.
//! 4. A wake-up through a waker that is not the task's own (a combinator such as `FuturesUnordered`) takes
//!    effect at the executor's next step, behind the wake-ups of the step that made it.
//! 5. Spawned tasks and aborted tasks take their turn on the same queue as woken ones.
//! 6. Randomness comes from [`rng::Seed`], one generator per component, by name.
//!
//! What the engine cannot enforce, models must keep: no wall clock, no iteration over unordered maps, no
//! addresses of objects as keys, no threads within a simulation. Independent simulations may run on as many
//! threads as there are.
//!
//! # Cost
//! In steady state nothing is allocated for an event, a sleep or a wake-up, nor for a oneshot made by
//! [`Oneshots`] (`tests/allocation.rs` counts). A [`oneshot`] made alone is one allocation; a task is
//! four at its start. `benches/` measures times.

mod notify;
mod oneshot;
mod queue;
mod simulation;
mod task;
mod wheel;

pub mod rng;
pub mod steady;
pub mod trace;

pub use notify::Notify;
pub use oneshot::{Completer, Completion, Oneshots, oneshot};
pub use queue::{EventKey, Scheduler};
pub use rng::{Rng, Seed};
pub use simulation::{Deadlock, Handle, Simulation, Sleep, World};
pub use steady::SteadyMean;
pub use task::{Cancelled, JoinHandle, yield_now};
pub use trace::Trace;
