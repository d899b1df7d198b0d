//! Access control services (base spec 7.7.8). Offsets are relative to its header.

use super::image::Image;

/// Capability bits.
pub const CAPABILITY: u16 = 4;
/// Control, the same bits.
pub const CONTROL: u16 = 6;
/// Bytes of the capability.
pub const LEN: u16 = 8;

/// Source validation: requests must carry a bus number from below the port.
pub const SOURCE_VALIDATION: u16 = 1 << 0;
/// Translation blocking: requests with translated addresses are blocked.
pub const TRANSLATION_BLOCKING: u16 = 1 << 1;
/// Peer-to-peer requests are redirected to the root complex.
pub const REQUEST_REDIRECT: u16 = 1 << 2;
/// Peer-to-peer completions are redirected to the root complex.
pub const COMPLETION_REDIRECT: u16 = 1 << 3;
/// Upstream forwarding of redirected requests from below.
pub const UPSTREAM_FORWARDING: u16 = 1 << 4;
/// Direct translated peer-to-peer: requests with translated addresses may go directly to their peer.
pub const DIRECT_TRANSLATED: u16 = 1 << 6;
/// Typical capabilities of a switch.
pub const USUAL: u16 = SOURCE_VALIDATION
    | TRANSLATION_BLOCKING
    | REQUEST_REDIRECT
    | COMPLETION_REDIRECT
    | UPSTREAM_FORWARDING
    | DIRECT_TRANSLATED;

pub(super) fn emit(image: &mut Image, at: u16, services: u16) {
    image.value16(at + CAPABILITY, services).rw16(at + CONTROL, services);
}
