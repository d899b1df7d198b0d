//! Tests that need measured data or other programs.

mod golden;

needs::main!(golden);
