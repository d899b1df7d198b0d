//! The NVMe drive against clauses of its specification, on a back-end without timing and on the fabric.

mod back_end;
mod clauses;
mod driver;
mod fabric;
mod properties;
mod timing;
