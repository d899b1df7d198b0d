#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::ethernet_frame::run(bytes));
