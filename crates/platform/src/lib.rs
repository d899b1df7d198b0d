//! The two faces of the platform, as traits.
//!
//! [`device`] is what a device model sees: its configuration space, accesses to
//! its BARs, DMA, interrupts, reset and time. A model written against it runs
//! unchanged on the simulated fabric and on a back-end without timing.

pub mod device;
