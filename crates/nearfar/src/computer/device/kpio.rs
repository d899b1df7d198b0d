//! Programmed I/O of NICs.

use devices::nic::KpioParams;
use drivers::nic::{Ending, Flow};
use machine::{KpioFormat, NicDriverEntry, NicKpio};

use super::nic::log2;
use crate::plain::plain;

/// A NIC's queues, from its file.
pub fn queues(kpio: &NicKpio) -> KpioParams {
    plain!(kpio => KpioParams {
        queues,
        log2_lines: log2(kpio.lines.value),
        log2_positions: log2(kpio.positions.value),
        latency, patience, report_delay
    })
}

/// The driver's settings from a scenario; `None` if it uses no such queues.
pub fn driver_params(entry: &NicDriverEntry) -> Option<drivers::nic::KpioParams> {
    let usual = drivers::nic::KpioParams::default();
    let select = entry.packets()?;
    let framed = entry.kpio_format.is_none_or(|format| format == KpioFormat::Framed);
    Some(drivers::nic::KpioParams {
        select,
        framed,
        flow: if entry.kpio_stalls.unwrap_or(!framed) { Flow::Link } else { Flow::Counted },
        stores: entry.kpio_stores.unwrap_or_default(),
        ending: if entry.kpio_fenced == Some(true) { Ending::Fenced } else { Ending::Stuffed },
        fence_every: entry.kpio_fence_every.map_or(usual.fence_every, |lines| lines as u16),
        shared: entry.kpio_shared.unwrap_or(usual.shared),
        ..usual
    })
}
