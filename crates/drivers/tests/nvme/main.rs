//! The suite of the NVMe driver on bare metal.

#[path = "../ground/bare.rs"]
mod ground;
mod suite;
