//! The NVMe driver's suite as far as it is about blocks and their cache, unchanged, in a guest whose virtual disk is a drive of its host.

mod ground;
#[path = "virtio_blk/mod.rs"]
mod suite;
