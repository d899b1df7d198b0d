//! Virtual NICs of guests above a NIC of their host: frames as they were sent, and what a guest does to its rings stays its own.

#[path = "../../../drivers/tests/common/mod.rs"]
mod common;
mod faults;
mod frames;
#[path = "../../../drivers/tests/ground/bare.rs"]
mod ground;
mod machine;
mod rogue;
