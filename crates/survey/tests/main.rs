//! Sources of real machines, read.

mod formats;
mod machines;
