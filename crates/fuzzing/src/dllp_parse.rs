//! DLLPs from arbitrary bytes, unchanged and with a corrected CRC.

use wire::pcie::{Dllp, crc};

/// Tests an input.
pub fn run(bytes: &[u8]) {
    let _ = Dllp::parse(bytes).map_err(|e| e.to_string());
    let Some(&body) = bytes.first_chunk::<4>() else { return };
    let [low, high] = crc::dllp_crc(body).to_le_bytes();
    match Dllp::parse(&[body[0], body[1], body[2], body[3], low, high]) {
        Ok(dllp) => {
            assert_eq!(Dllp::parse(&dllp.to_bytes()), Ok(dllp));
            let _ = dllp.to_string();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
