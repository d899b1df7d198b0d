#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::event_schedule::run(bytes));
