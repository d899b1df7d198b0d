//! Sources of real machines, read.

mod formats;
mod kinds;
mod machines;
mod processes;
