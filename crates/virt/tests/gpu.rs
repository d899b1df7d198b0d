//! The suite of the GPU's driver, unchanged, in a guest that the GPU is passed through to.

mod ground;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod suite;
