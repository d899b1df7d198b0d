//! Files: what they say, and what is said of their mistakes.

mod changes;
mod clusters;
mod computers;
mod diagnostics;
mod impossible;
mod library;
mod shapes;
