//! Claims of papers as data, and their verdicts.
//!
//! A claim states which experiments it needs and how its number is computed, so that a runner need not know the
//! claims: it simulates [`ClaimFile::experiments`], fills an [`Evidence`] and asks for verdicts.

mod claim;
mod figure;
mod file;
mod measure;
mod point;
mod stability;
mod statement;
mod table;
pub(crate) mod words;

pub use claim::{Bound, Claim, ClaimResult, Role, TallyGroup, Verdict};
pub use figure::{Axis, Figure, FigureLine, ObservedLine, Reference, Sample};
pub use file::{Assumption, ClaimFile, ClaimFileError, ScenarioRun, VALUES_HEADER};
pub use measure::Measure;
pub use point::{Aggressor, AnalyticPoint, Evidence, Experiment, Outcome, Point, PointSpec, Statistic};
pub use stability::Stability;
pub use statement::{Statement, VerdictCounts, statements};
pub(crate) use table::short;
pub use table::{claim_cells, claims_table, count_line, statements_line};
