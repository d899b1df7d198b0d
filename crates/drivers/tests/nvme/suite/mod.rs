//! The suite of the NVMe driver: kernel, block layer and driver against the controller, over the fabric. The crate around it says
//! what they stand on.

mod cache;
mod durability;
mod faults;
mod legacy;
pub mod machine;
mod probe;
pub mod programs;
mod reads_back;
