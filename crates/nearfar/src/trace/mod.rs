//! Traces of a simulation's links, as a PCIe analyser shows them.
//!
//! A [`Recorder`] collects packets from taps on links; [`Capture`] is the result, in order of time. [`Row`] decodes a
//! packet from its bytes; [`listing`], [`csv`], [`pcapng`] and [`perfetto`] write rows and timelines.
//!
//! ```
//! use nearfar::trace::{Span, bench, listing};
//! use nearfar::{Experiment, Library};
//!
//! let changes = [("pcie_bench.samples".to_owned(), "100".to_owned())];
//! let loaded = Experiment::load(&Library::built_in(), "latency-by-size", "set", &changes);
//! let Ok(Experiment::Bench(setup)) = loaded else { panic!("{loaded:?}") };
//! let (capture, _) = bench::trace(&setup, 1, Span { packets: 8, ..Span::default() })?;
//! assert!(listing::listing(&capture, false, None).contains("MRd"));
//! # Ok::<(), nearfar::bench::BenchError>(())
//! ```

pub mod bench;
mod capture;
pub mod computers;
pub mod csv;
mod doorbells;
pub mod filter;
mod follow;
mod links;
pub mod listing;
pub mod pcapng;
pub mod perfetto;
mod recorder;
mod row;
mod stall;
mod summary;
mod timeline;

pub use filter::{Filter, UnknownType};
// Taps belong to the hardware and are not part of the public interface.
pub use capture::{Capture, LinkInfo, Span, Until};
pub use doorbells::DoorbellBar;
use filter::mnemonic;
#[doc(hidden)]
pub use recorder::Recorder;
pub use row::{Decoded, Row};
pub use stall::Stall;
pub use summary::{DirectionSummary, Summary, human};
pub use timeline::Timeline;
