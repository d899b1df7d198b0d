//! Probes that fail, or whose drive goes meanwhile, leave nothing behind.

use devices::nvme::{Fault, FaultKind};
use kernel::DmaMode;
use platform::block::{BlockOp, Segment};
use units::Duration;

use super::machine::{Machine, Setup};

const IDENTIFY: u8 = 6;

fn hang(after: u64) -> Fault {
    Fault { queue: Some(0), opcode: Some(IDENTIFY), after, kind: FaultKind::Hang }
}

impl Machine {
    fn free_pages(&self) -> u64 {
        self.kernel.memory().iter().map(|node| node.free.get()).sum()
    }

    /// No driver has the drive, and none has left it anything.
    fn assert_left_alone(&self, at: impl std::fmt::Debug) {
        for function in self.kernel.pci().iter().filter(|function| function.identity.class >> 8 == 0x0108) {
            let has = (function.driver, function.mapped_pages, function.irqs.len());
            assert_eq!(has, (None, 0, 0), "{at:?} {:?}", self.kernel.log());
        }
        assert!(!self.is_master(), "{at:?}");
        for name in ["nvme0n1", "nvme0n2", "nvme1n1", "nvme1n2"] {
            assert!(self.kernel.face().open_block(name).is_none(), "{at:?} {name}");
        }
        assert!(self.driver.controllers().is_empty(), "{at:?}");
    }

    fn assert_reads(&self, at: impl std::fmt::Debug) {
        let memory = vec![Segment { at: self.memory(1, 0), length: 4096 }];
        assert_eq!(self.direct(0, BlockOp::Read, 0, memory, 4096), Ok(()), "{at:?}");
    }
}

#[test]
fn a_probe_that_fails_gives_everything_back() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let machine = Machine::off(&Setup { mode, ..Setup::default() });
        machine.control.inject(hang(0));
        machine.boot();
        machine.settle();
        machine.assert_left_alone(mode);
        let mut before = None;
        for round in 0..4 {
            machine.plug(false);
            machine.control.inject(hang(round % 2));
            machine.plug(true);
            machine.assert_left_alone((mode, round));
            let free = machine.free_pages();
            assert_eq!(*before.get_or_insert(free), free, "{mode:?} {round}");
        }
        machine.plug(false);
        machine.plug(true);
        machine.assert_reads(mode);
    }
}

#[test]
fn a_probe_that_fails_at_the_second_namespace_takes_the_first_back() {
    let machine = Machine::off(&Setup { mode: DmaMode::Strict, ..Setup::default() });
    // The controller, the list of namespaces, and the first are told.
    machine.control.inject(hang(3));
    machine.boot();
    machine.settle();
    assert!(
        machine.kernel.log().iter().any(|(_, line)| line.contains("failed")),
        "{:?}",
        machine.kernel.log()
    );
    machine.assert_left_alone("namespace");
    machine.plug(false);
    machine.plug(true);
    machine.assert_reads("namespace");
}

#[test]
fn a_drive_that_goes_while_it_is_probed_is_bound_to_nobody() {
    let whole = Machine::off(&Setup { mode: DmaMode::Strict, ..Setup::default() });
    let off = whole.simulation.now();
    whole.boot();
    let step = Duration::from_ps(whole.simulation.now().since(off).as_ps() / 60);
    for n in 1..=60 {
        let machine = Machine::off(&Setup { mode: DmaMode::Strict, ..Setup::default() });
        let (hw, drive) = (machine.simulation.handle(), machine.drive);
        machine.simulation.spawn(async move {
            hw.sleep(step * n).await;
            hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(drive));
        });
        machine.boot();
        machine.settle();
        let left = machine.kernel.pci().iter().filter(|function| function.driver == Some("nvme")).count();
        assert_eq!((left, machine.driver.controllers().len()), (0, 0), "{n} {:?}", machine.kernel.log());
        assert!(machine.kernel.face().open_block("nvme0n1").is_none(), "{n}");
        machine.plug(true);
        machine.assert_reads(n);
    }
}

/// A machine that is not needed any more is gone, and its drive with it.
#[test]
fn nothing_is_left_of_a_machine_that_is_dropped() {
    let machine = Machine::new(&Setup::default());
    machine.assert_reads("once");
    let kernel = std::rc::Rc::downgrade(&machine.kernel.face());
    drop(machine);
    assert_eq!(kernel.strong_count(), 0);
}
