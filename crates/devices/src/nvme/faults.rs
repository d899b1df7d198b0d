//! Faults that tests and experiments inject.

use wire::nvme::Status;

/// What goes wrong with a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// It is never answered.
    Hang,
    /// It is done, but no completion is posted.
    DropCompletion,
    /// Its completion is posted, but no interrupt raised.
    DropInterrupt,
    /// Its completion has the wrong phase.
    WrongPhase,
    /// Its completion names another command.
    WrongId,
    /// It fails with this status, undone.
    Fail(Status),
    /// The controller fails for good (CSTS.CFS).
    Fatal,
    /// It is never answered, nor can the controller be disabled any more (CC is not heeded) until its function is reset.
    Deaf,
}

/// A fault and the command that it befalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Submission queue; any if `None`.
    pub queue: Option<u16>,
    /// Opcode; any if `None`.
    pub opcode: Option<u8>,
    /// Matching commands that are spared before.
    pub after: u64,
    /// What happens.
    pub kind: FaultKind,
}

/// Faults that have not happened yet.
#[derive(Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// The fault that befalls a command, if any: it happens once.
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
