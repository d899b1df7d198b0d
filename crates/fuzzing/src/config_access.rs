//! Any sequence of accesses to a configuration space: the identity is constant, and no write affects another register.

use std::sync::LazyLock;

use wire::pcie::config::examples::{endpoint, root_port};
use wire::pcie::config::{ConfigSpace, ResetKind, bars, caps};

/// Built once, as copies are cheap.
static SPACES: LazyLock<[ConfigSpace; 2]> = LazyLock::new(|| [endpoint(), root_port()]);

/// Tests an input.
pub fn run(bytes: &[u8]) {
    let Some((&first, operations)) = bytes.split_first() else { return };
    let mut space = SPACES[usize::from(first & 1)].clone();
    let identity = (space.dword(0), space.dword(8));
    for operation in operations.chunks_exact(8) {
        let [kind, enables, at_low, at_high, a, b, c, d] = *operation else {
            unreachable!("chunks of eight")
        };
        let (at, value) = (u16::from_le_bytes([at_low, at_high]), u32::from_le_bytes([a, b, c, d]));
        match kind % 8 {
            0 => space.update(at.max(0x40), 0, value),
            1 => space.reset(ResetKind::Hot),
            2 => space.reset(ResetKind::Function),
            3 => drop(space.read(at, enables)),
            _ => drop(space.write(at & 0x0fff, value, enables)),
        }
        assert_eq!((space.dword(0), space.dword(8)), identity);
    }
    let read = |at| space.dword(at);
    let _ = (caps::find(&read, caps::id::MSIX), caps::find_extended(&read, caps::extended_id::AER));
    for i in 0..6 {
        let at = 0x10 + 4 * u16::from(i);
        let _ = (space.bar(i), bars::from_sizing(read(at), read(at + 4), u32::MAX, u32::MAX));
    }
    let _ =
        (space.find_bar(0x1000, 64), space.msi(), space.msix_layout(), space.msix_enabled(), space.tags());
    let _ = (space.max_payload(), space.max_read_request(), space.power_state());
}
