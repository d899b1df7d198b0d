//! The NVMe driver, kernel and block layer against the controller, over the fabric.

mod cache;
mod durability;
mod faults;
mod machine;
mod probe;
mod reads_back;
