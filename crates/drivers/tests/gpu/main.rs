//! The suite of the GPU's driver on bare metal.

#[path = "../ground/bare.rs"]
mod ground;
mod suite;
