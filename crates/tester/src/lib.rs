//! Network testers: boxes at the end of a cable that send and count, as engineers plug them in instead of a second computer.
//!
//! A tester is a [`Device`](platform::device::Device) with an Ethernet port and no functions, in nobody's slot. Its
//! protocol machine ([`inet`]) takes no time and its bytes come from nowhere: what a run with one measures, and what the
//! simulation of it costs, is the computer at the other end.
//!
//! | file | subject |
//! |---|---|
//! | `source` | a source of a TCP stream |
//! | `generator` | a generator of UDP packets, which takes what comes back |
//! | `sink` | a sink of any number of them |
//! | `port` | its frames: addresses, headers, check sequences |

#![forbid(unsafe_code)]

mod generator;
mod port;
mod sink;
mod source;

pub use generator::{Flow, Generator, GeneratorHandle, GeneratorParams};
pub use sink::{Sink, SinkParams};
pub use source::{Ending, Sent, Source, SourceHandle, SourceParams};
