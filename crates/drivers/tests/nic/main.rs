//! The suite of the NIC's driver on bare metal.

#[path = "../common/mod.rs"]
mod common;
#[path = "../ground/bare.rs"]
mod ground;
mod suite;
