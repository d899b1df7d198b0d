//! Tests that need measured data or other programs.

mod lspci;

needs::main!(lspci);
