//! See the crate's Cargo.toml.
