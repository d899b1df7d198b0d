//! Fault injection for tests and experiments.

use wire::nvme::Status;

/// Effect of a fault on a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The command is never completed.
    Hang,
    /// The command is executed, but no completion is posted.
    DropCompletion,
    /// The completion is posted without an interrupt.
    DropInterrupt,
    /// The completion has the wrong phase.
    WrongPhase,
    /// The completion has the identifier of another command.
    WrongId,
    /// The command fails with this status without being executed.
    Fail(Status),
    /// The controller enters the fatal state (CSTS.CFS).
    Fatal,
    /// The command is never completed, and writes to CC are ignored until the function is reset.
    Deaf,
}

/// A fault, and the command that it affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Submission queue; any if `None`.
    pub queue: Option<u16>,
    /// Opcode; any if `None`.
    pub opcode: Option<u8>,
    /// Number of matching commands to skip first.
    pub after: u64,
    /// Effect of the fault.
    pub kind: FaultKind,
}

/// Faults that have not occurred yet.
#[derive(Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// The fault for a command, if any. Each occurs once.
    pub fn take(&mut self, queue: u16, opcode: u8) -> Option<FaultKind> {
        let mut hit = None;
        for (n, fault) in self.0.iter_mut().enumerate() {
            let meant = fault.queue.is_none_or(|q| q == queue) && fault.opcode.is_none_or(|o| o == opcode);
            match (meant, fault.after) {
                (false, _) => {}
                (true, 0) => {
                    hit = hit.or(Some(n));
                }
                (true, _) => fault.after -= 1,
            }
        }
        hit.map(|n| self.0.remove(n).kind)
    }
}
