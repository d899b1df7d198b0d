//! The NVMe driver, kernel and block layer against the controller, over the fabric.

mod faults;
mod machine;
mod reads_back;
