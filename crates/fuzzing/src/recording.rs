//! Any bytes as a recording of guests, compressed or about to be: steps or an error.

use std::io::Write as _;

use live::recording::GuestRecording;
use live::replay::guest_steps;

/// More hosts than the corpus has.
const HOSTS: usize = 3;

/// Tests an input.
pub fn run(data: &[u8]) {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let packed = packed.write_all(data).and_then(|()| packed.finish());
    for bytes in [data, packed.as_deref().unwrap_or_default()] {
        if let Ok(recording) = GuestRecording::read(bytes) {
            assert_eq!(guest_steps(&recording, HOSTS).len(), HOSTS);
        }
    }
}
