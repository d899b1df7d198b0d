//! Access control services (base spec 7.7.8). Offsets are relative to its header.

use super::image::Image;

/// Capability bits.
pub const CAPABILITY: u16 = 4;
/// Control, the same bits.
pub const CONTROL: u16 = 6;
/// Bytes of the capability.
pub const LEN: u16 = 8;

/// Requests must carry a bus number from below the port.
pub const SOURCE_VALIDATION: u16 = 1 << 0;
/// Translated addresses are blocked.
pub const TRANSLATION_BLOCKING: u16 = 1 << 1;
/// Peer-to-peer requests go up to the root complex.
pub const REQUEST_REDIRECT: u16 = 1 << 2;
/// Peer-to-peer completions go up to the root complex.
pub const COMPLETION_REDIRECT: u16 = 1 << 3;
/// Requests that came from below and were redirected go on upstream.
pub const UPSTREAM_FORWARDING: u16 = 1 << 4;
/// Requests with translated addresses may go straight to their peer.
pub const DIRECT_TRANSLATED: u16 = 1 << 6;
/// What a switch usually has.
pub const USUAL: u16 = SOURCE_VALIDATION
    | TRANSLATION_BLOCKING
    | REQUEST_REDIRECT
    | COMPLETION_REDIRECT
    | UPSTREAM_FORWARDING
    | DIRECT_TRANSLATED;

pub(super) fn emit(image: &mut Image, at: u16, services: u16) {
    image.value16(at + CAPABILITY, services).rw16(at + CONTROL, services);
}
