//! The suite of the NIC's driver on bare metal.

mod common;
#[path = "ground/bare.rs"]
mod ground;
#[path = "nic/mod.rs"]
mod suite;
