//! The suite of the GPU's driver, unchanged, in a guest that has the GPU of another host.

#[path = "ground/guest.rs"]
mod ground;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod suite;
