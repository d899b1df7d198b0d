//! Checksum offload and completion of frames for transmit.

use wire::ethernet::{FCS_LEN, LEAST_FRAME, append_fcs};
use wire::ip::Dissection;

/// Fills in the checksums of a frame without padding.
pub fn fill_checksums(frame: &mut [u8], network: bool, transport: bool) {
    if let Some(parts) = Dissection::of(frame) {
        if network {
            parts.fill_network_checksum(frame);
        }
        if transport {
            parts.fill_transport_checksum(frame);
        }
    }
}

/// Pads a frame to the minimum length and appends its check sequence.
pub fn finish(frame: &mut Vec<u8>) {
    frame.resize(frame.len().max(LEAST_FRAME - FCS_LEN), 0);
    append_fcs(frame);
}
