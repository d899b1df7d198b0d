//! The suite of the NIC's driver: two kernels exchange frames through drivers, devices and the fabric. The crate around it says what
//! they stand on.

mod faults;
mod frames;
mod legacy;
mod placement;
mod properties;
mod queues;
