//! The suite of the GPU's driver, unchanged, on a host that has borrowed the GPU.

#[path = "ground/lent.rs"]
mod ground;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod suite;
