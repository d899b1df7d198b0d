//! Tests that need measured data or other programs.

mod scenario;
mod tshark;

needs::main!(tshark);
