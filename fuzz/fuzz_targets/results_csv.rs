#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::results_csv::run(bytes));
