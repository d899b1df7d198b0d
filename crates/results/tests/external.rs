//! Tests that need measured data or other programs.

mod artefacts;
mod dat;
mod measured_pciebench;
mod published_measured;

needs::main!(artefacts, dat, measured_pciebench, published_measured);
