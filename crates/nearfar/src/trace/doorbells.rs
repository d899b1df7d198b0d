//! Doorbells: the registers with which a driver tells a device of work.

use ::kernel::FunctionInfo;
use wire::nic::registers::{INLINE_BAR, INLINE_PAGE, QUEUE_STRIDE, RX_QUEUES, TX_QUEUES, queue};
use wire::nvme::registers::DOORBELLS;

/// What is in a BAR with doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DoorbellKind {
    /// Registers of a drive.
    Drive,
    /// Registers of a NIC.
    Nic,
    /// Inline doorbells of a NIC.
    NicInline,
}

/// A BAR with doorbells, as a host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoorbellBar {
    start: u64,
    size: u64,
    kind: DoorbellKind,
}

impl DoorbellBar {
    /// Those of a function.
    pub(super) fn of(function: &FunctionInfo) -> Vec<Self> {
        let kind = |number: u8| match (function.identity.class >> 8, number) {
            (0x01_08, 0) => Some(DoorbellKind::Drive),
            (0x02_00, 0) => Some(DoorbellKind::Nic),
            (0x02_00, INLINE_BAR) => Some(DoorbellKind::NicInline),
            _ => None,
        };
        let bar = |(number, bar): &(u8, wire::pcie::config::Bar)| {
            (bar.address > 0).then_some(Self { start: bar.address, size: bar.size, kind: kind(*number)? })
        };
        function.bars.iter().filter_map(bar).collect()
    }

    /// The doorbell at an address, and the value that is written, which is short.
    pub(super) fn told(&self, address: u64, payload: &[u8]) -> Option<String> {
        let offset = address.checked_sub(self.start).filter(|offset| *offset < self.size)?;
        let value = payload.first_chunk().map(|first| u32::from_le_bytes(*first))?;
        match self.kind {
            DoorbellKind::Drive => {
                let number = offset.checked_sub(DOORBELLS)? / 4;
                let (queue, is_head) = (number / 2, number % 2 == 1);
                Some(match is_head {
                    true => format!("completion queue {queue}, head {value}"),
                    false => format!("submission queue {queue}, tail {value}"),
                })
            }
            DoorbellKind::Nic => {
                let [tx, rx] = [TX_QUEUES, RX_QUEUES].map(|first| {
                    let own = offset.checked_sub(first)?;
                    (own % QUEUE_STRIDE == queue::TAIL && own < RX_QUEUES - TX_QUEUES)
                        .then_some(own / QUEUE_STRIDE)
                });
                let of = |way: &str, number: u64| format!("{way} queue {number}, tail {value}");
                tx.map(|number| of("TX", number)).or(rx.map(|number| of("RX", number)))
            }
            DoorbellKind::NicInline => Some(format!("TX queue {}, with descriptors", offset / INLINE_PAGE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_has_a_queue_and_a_value() {
        let of = |kind, offset: u64| {
            let bar = DoorbellBar { start: 0xfe00_0000, size: 0x4_0000, kind };
            bar.told(0xfe00_0000 + offset, &[5, 0, 0, 0])
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(of(DoorbellKind::Drive, 0x1008), told("submission queue 1, tail 5"));
        assert_eq!(of(DoorbellKind::Drive, 0x100c), told("completion queue 1, head 5"));
        assert_eq!(of(DoorbellKind::Drive, 0x14), None);
        assert_eq!(of(DoorbellKind::Nic, 0x1_0100), told("TX queue 2, tail 5"));
        assert_eq!(of(DoorbellKind::Nic, 0x2_0000), told("RX queue 0, tail 5"));
        assert_eq!(of(DoorbellKind::Nic, 0x2_002c), None);
        assert_eq!(of(DoorbellKind::NicInline, 0x300), told("TX queue 1, with descriptors"));
        assert_eq!(of(DoorbellKind::Nic, 0x4_0000), None);
    }
}
