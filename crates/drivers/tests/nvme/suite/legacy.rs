//! A drive without interrupt messages, or one whose driver is not to use them: its legacy interrupt is enough.

use devices::nvme::{Fault, FaultKind};
use kernel::DmaMode;
use platform::block::{BlockOp, Segment};
use platform::storage::{IoCompletions, IoRequest};

use super::machine::{Machine, Setup};

/// Writes and reads sixteen blocks at once, often; gives how many failed.
fn exercise(machine: &Machine) -> usize {
    let at = machine.memory(16, 0);
    for n in 0..16u64 {
        machine.put(at + n * 4096, &[n as u8 + 1; 4096]);
    }
    let mut failed = 0;
    for (core, op) in [(0, BlockOp::Write { fua: false }), (5, BlockOp::Read), (11, BlockOp::Read)] {
        if op == BlockOp::Read {
            machine.put(at, &[0; 16 * 4096]);
        }
        let file = machine.file();
        failed += machine.run(core, move |cpu| {
            Box::pin(async move {
                let completions = IoCompletions::new();
                let mut failed = 0;
                for _ in 0..4 {
                    for token in 0..16u64 {
                        let memory = vec![Segment { at: at + token * 4096, length: 4096 }];
                        let io = IoRequest { op, offset: token * 8192, length: 4096, memory, token };
                        file.submit(&cpu, vec![io], &completions);
                    }
                    for _ in 0..16 {
                        failed += usize::from(completions.next().await.result.is_err());
                    }
                }
                failed
            })
        });
        for n in 0..16u64 {
            assert_eq!(machine.get(at + n * 4096, 4096), [n as u8 + 1; 4096], "{op:?} {n}");
        }
    }
    failed
}

fn setups() -> impl Iterator<Item = Setup> {
    let (mut without, mut unused) = (Setup::default(), Setup::default());
    without.drive = |drive| drive.vectors = 0;
    unused.options.legacy_interrupt = true;
    // A translating IOMMU remaps the line's messages, too.
    [without, unused].into_iter().flat_map(|setup| {
        [DmaMode::Off, DmaMode::Strict].map(|mode| Setup {
            mode,
            options: setup.options,
            drive: setup.drive,
            ..Setup::default()
        })
    })
}

#[test]
fn nothing_is_lost_with_one_legacy_interrupt_for_all_queues() {
    for (n, setup) in setups().enumerate() {
        let machine = Machine::new(&setup);
        if !Machine::HAS_LINES {
            // Windows pass writes, and a line is none.
            assert!(machine.driver.controllers().is_empty(), "{n}");
            continue;
        }
        let irqs = machine
            .kernel
            .pci()
            .into_iter()
            .find(|function| function.driver == Some("nvme"))
            .map(|f| f.irqs.len());
        assert_eq!(irqs, Some(1), "{n}");
        assert_eq!(exercise(&machine), 0, "{n}");
        let counters = machine.controller().counters();
        assert_eq!(
            (counters.timeouts, counters.lost_interrupts, counters.errors),
            (0, 0, 0),
            "{n}: {counters:?}"
        );
        assert!(counters.interrupts > counters.idle_interrupts, "{n}: {counters:?}");
        machine.settle();
        assert_eq!(machine.mapped(), 0, "{n}");
    }
}

#[test]
fn a_line_is_quiet_after_a_reset_and_after_the_drive_has_gone_and_works_again() {
    if !Machine::HAS_LINES {
        return;
    }
    let mut setup = setups().next().expect("there are some");
    setup.options.retries = 0;
    let machine = Machine::new(&setup);
    machine.control.inject(Fault { queue: None, opcode: None, after: 0, kind: FaultKind::Fatal });
    let memory = vec![Segment { at: machine.memory(1, 0), length: 4096 }];
    assert_ne!(machine.direct(0, BlockOp::Read, 0, memory.clone(), 4096), Ok(()));
    machine.settle();
    assert_eq!(exercise(&machine), 0);
    machine.plug(false);
    assert!(
        machine.driver.controllers().is_empty() && machine.kernel.face().open_block("/dev/nvme0n1").is_none()
    );
    machine.plug(true);
    assert_eq!(exercise(&machine), 0);
    // An interrupt that the drive forgets is found when its command's time is over, as one by message is.
    machine.control.inject(Fault { queue: None, opcode: None, after: 0, kind: FaultKind::DropInterrupt });
    assert_eq!(machine.direct(0, BlockOp::Read, 0, memory, 4096), Ok(()));
    assert_eq!(machine.controller().counters().lost_interrupts, 1);
}
