//! A borrowed drive that hangs.

use devices::nvme::{Fault, FaultKind};
use drivers::nvme::ControllerState;
use kernel::DmaMode;
use platform::Error;
use platform::block::{BlockOp, Segment};

use crate::nvme::machine::{Machine, Setup};

/// The borrower's driver gives up a drive that hangs for good; the lender has it back, with nothing of the lease left, and what is
/// lent next is in order.
#[test]
fn a_drive_that_hangs_comes_back_clean() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = Machine::new(&Setup { mode, ..Setup::default() });
        let (lent, computer) = (machine.computer.held(), &machine.computer);
        let read = |machine: &Machine| {
            let memory = vec![Segment { at: machine.memory(1, 0), length: 4096 }];
            machine.direct(0, BlockOp::Read, 0, memory, 4096)
        };
        // It answers nothing more, not even that it be disabled.
        machine.control.inject(Fault { queue: None, opcode: None, after: 0, kind: FaultKind::Deaf });
        assert_eq!(read(&machine), Err(Error::TimedOut), "{mode:?}");
        machine.settle();
        assert_eq!(machine.controller().state(), ControllerState::Dead, "{mode:?}");
        let driver = machine.controller();
        computer.give_back(&machine.simulation);
        assert_eq!(driver.dma_counters().live(), 0, "{mode:?}");
        for (own, counters) in computer.held().into_iter().enumerate() {
            assert_eq!((counters.lent, counters.borrowed, counters.isolated), (0, 0, 0), "{mode:?}, {own}");
        }
        assert!(!machine.is_master(), "{mode:?}");
        // Its name is free when nobody knows it any more.
        drop(driver);
        computer.borrow(&machine.simulation);
        assert_eq!(computer.held(), lent, "{mode:?}");
        assert_eq!(read(&machine), Ok(()), "{mode:?}");
        assert_eq!(machine.kernel.iommu_faults(), [], "{mode:?}");
    }
}
