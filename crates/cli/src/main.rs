//! The `nearfar` program.
fn main() {}
