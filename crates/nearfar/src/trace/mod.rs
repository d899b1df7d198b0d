//! What passed the links of a simulation, as a PCIe analyser shows it.
//!
//! A [`Recorder`] collects packets from the taps of links; [`Capture`] is what it holds at the end, in order of
//! time. [`Row`] decodes a packet from its bytes; [`listing`], [`csv`], [`pcapng`] and [`perfetto`] write rows and timelines.

pub mod bench;
pub mod computers;
pub mod csv;
pub mod filter;
pub mod follow;
mod links;
pub mod listing;
pub mod pcapng;
pub mod perfetto;
mod recorder;
mod row;
mod summary;
pub mod timeline;

pub use filter::{Filter, UnknownType};
pub use links::add_links;
pub use recorder::{Capture, LinkInfo, Recorder, Span};
pub use row::{Decoded, Row, mnemonic};
pub use summary::{DirectionSummary, Summary, human};
