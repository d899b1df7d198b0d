//! Compares measured rows with simulated ones.

mod modes;
mod page;
mod row;
mod rule;
mod summary;
mod table;

pub use modes::{ModeSummary, modes};
pub use page::{curves, pictures, sections};
pub use row::{CompareRow, Quantity, Tail, compare_directory, compare_file};
pub use rule::{Artefact, Cause, Criterion, Rules};
pub use summary::{FamilySummary, LARGE_MISS_PCT, Miss, Overall, Summary, Target, median, percentile};
pub use table::{rows_table, summary_markdown, summary_table};
