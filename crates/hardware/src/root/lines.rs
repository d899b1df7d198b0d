//! Legacy interrupt lines at the root complex: inputs of an I/O APIC.

use wire::pcie::{IntxLine, IntxLines};
use wire::vtd::MsiMessage;

/// State of one of the inputs.
#[derive(Clone, Copy, Default)]
struct Input {
    /// Message sent while the line is active; `None` while the input is masked.
    message: Option<MsiMessage>,
    /// The message has been sent and no end of interrupt has come (Remote IRR).
    in_service: bool,
}

/// Four level-triggered inputs (Intel 82093AA, I/O APIC). While its line is active an input sends a message, and the
/// next only after the end of interrupt.
#[derive(Default)]
pub struct LineController {
    inputs: [Input; 4],
    active: IntxLines,
}

impl LineController {
    /// Sets the active lines. Returns the messages to send.
    pub fn set_active(&mut self, active: IntxLines) -> impl Iterator<Item = MsiMessage> + use<> {
        self.active = active;
        IntxLine::ALL.map(|line| self.next(line)).into_iter().flatten()
    }

    /// Sets or masks a line's message. Returns the message to send now, if any.
    pub fn program(&mut self, line: IntxLine, message: Option<MsiMessage>) -> Option<MsiMessage> {
        self.inputs[line as usize].message = message;
        self.next(line)
    }

    /// End of interrupt for a line. Returns the next message if the line is still active.
    pub fn end(&mut self, line: IntxLine) -> Option<MsiMessage> {
        self.inputs[line as usize].in_service = false;
        self.next(line)
    }

    /// Whether any line's message satisfies `message`.
    pub fn sends(&self, message: impl Fn(MsiMessage) -> bool) -> bool {
        self.inputs.iter().any(|input| input.message.is_some_and(&message))
    }

    fn next(&mut self, line: IntxLine) -> Option<MsiMessage> {
        let input = &mut self.inputs[line as usize];
        let message = input.message.filter(|_| self.active.has(line) && !input.in_service)?;
        input.in_service = true;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MESSAGE: MsiMessage = MsiMessage { address: 0xfee0_0000, data: 0x31 };

    fn only(line: IntxLine, active: bool) -> IntxLines {
        let mut lines = IntxLines::default();
        lines.set(line, active);
        lines
    }

    #[test]
    fn an_active_line_sends_again_when_it_was_dealt_with_and_not_before() {
        let mut lines = LineController::default();
        let (line, on, off) = (IntxLine::C, only(IntxLine::C, true), IntxLines::default());
        let set = |lines: &mut LineController, active| lines.set_active(active).count();
        assert_eq!(set(&mut lines, on), 0, "masked");
        assert_eq!(lines.program(line, Some(MESSAGE)), Some(MESSAGE));
        assert_eq!((set(&mut lines, off), set(&mut lines, on)), (0, 0), "it is in service");
        assert_eq!(lines.end(line), Some(MESSAGE), "still active");
        assert_eq!(set(&mut lines, off), 0);
        assert_eq!(lines.end(line), None);
        assert_eq!(set(&mut lines, on), 1);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Level(IntxLine, bool),
        Mask(IntxLine, bool),
        End(IntxLine),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let line = || (0usize..4).prop_map(|n| IntxLine::ALL[n]);
        let step = prop_oneof![
            (line(), any::<bool>()).prop_map(|(line, active)| Step::Level(line, active)),
            (line(), any::<bool>()).prop_map(|(line, masked)| Step::Mask(line, masked)),
            line().prop_map(Step::End),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// No active line is lost, none sends twice, and an inactive or masked one sends nothing.
        #[test]
        fn each_line_is_in_service_while_it_must_be(steps in steps()) {
            let mut lines = LineController::default();
            let message = |line: IntxLine| MsiMessage { data: line as u32, ..MESSAGE };
            let (mut active, mut masked, mut served) = (IntxLines::default(), [true; 4], [false; 4]);
            for step in steps {
                let sent: Vec<MsiMessage> = match step {
                    Step::Level(line, on) => {
                        active.set(line, on);
                        lines.set_active(active).collect()
                    }
                    Step::Mask(line, on) => {
                        masked[line as usize] = on;
                        lines.program(line, (!on).then(|| message(line))).into_iter().collect()
                    }
                    Step::End(line) => {
                        served[line as usize] = false;
                        lines.end(line).into_iter().collect()
                    }
                };
                for line in IntxLine::ALL {
                    let n = line as usize;
                    let due = active.has(line) && !masked[n] && !served[n];
                    prop_assert_eq!(sent.iter().filter(|sent| **sent == message(line)).count(), usize::from(due));
                    served[n] |= due;
                }
            }
        }
    }
}
