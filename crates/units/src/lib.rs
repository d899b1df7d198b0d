//! Quantities of the simulation as types.
//!
//! A picosecond is never a byte, gigabits per second are never gigabytes per
//! second, and an I/O virtual address is never a host-physical one. Every
//! quantity is a thin wrapper over an integer: arithmetic that makes sense is
//! defined, the rest does not compile.
//!
//! All of them can be read from and written as text with a unit (`"330 ns"`,
//! `"64 KiB"`, `"100 Gbit/s"`, `"2.5 GHz"`), which is how machine and scenario
//! files spell them.

mod address;
pub mod hash;
mod parse;
mod rate;
mod size;
pub mod steps;
mod time;

pub use address::{BarOffset, BusAddress, GuestPhysical, HostPhysical, Iova};
pub use parse::QuantityError;
pub use rate::{BitRate, ByteRate, Cycles, Frequency};
pub use size::Bytes;
pub use time::{Duration, Time};
