//! Network testers: devices at the end of a cable that send and count, used in place of a second computer.
//!
//! A tester is a [`Device`](platform::device::Device) with an Ethernet port and no functions, in no slot. Its
//! protocol machine ([`inet`]) takes no simulated time and its data come from no memory, so both the measurement and
//! the simulation cost are those of the computer at the other end.
//!
//! | file | subject |
//! |---|---|
//! | `source` | a source of a TCP stream |
//! | `generator` | a UDP packet generator that checks returned packets |
//! | `sink` | a sink for any number of TCP streams |
//! | `port` | frames: addresses, headers, check sequences |

#![forbid(unsafe_code)]

mod generator;
mod port;
mod sink;
mod source;

pub use generator::{Flow, Generator, GeneratorHandle, GeneratorParams};
pub use sink::{Sink, SinkParams};
pub use source::{Ending, Sent, Source, SourceHandle, SourceParams};
