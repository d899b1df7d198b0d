//! State of the legacy interrupt lines (base spec 2.2.8.1 and 6.1.2).

/// One of the four virtual interrupt lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum IntxLine {
    /// INTA.
    A = 0,
    /// INTB.
    B = 1,
    /// INTC.
    C = 2,
    /// INTD.
    D = 3,
}

impl IntxLine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// From the Interrupt Pin register, where 0 means none.
    pub const fn from_pin(pin: u8) -> Option<Self> {
        match pin {
            1..=4 => Some(Self::ALL[pin as usize - 1]),
            _ => None,
        }
    }

    /// The line above a bridge onto which a line of device `device` below it is mapped (base spec table 2-21).
    #[must_use]
    pub const fn above(self, device: u8) -> Self {
        Self::ALL[(self as usize + device as usize) % 4]
    }
}

/// Set of active lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntxLines(u8);

impl IntxLines {
    /// Whether a line is active.
    pub const fn has(self, line: IntxLine) -> bool {
        self.0 >> line as u8 & 1 == 1
    }

    /// Activates or deactivates a line.
    pub const fn set(&mut self, line: IntxLine, active: bool) {
        self.0 = self.0 & !(1 << line as u8) | (active as u8) << line as u8;
    }

    /// Lines that are active above a bridge, given the active lines of the devices below it, with their numbers.
    pub fn above(devices: impl Iterator<Item = (u8, Self)>) -> Self {
        let mut all = Self::default();
        for (device, lines) in devices {
            for line in IntxLine::ALL.into_iter().filter(|&line| lines.has(line)) {
                all.set(line.above(device), true);
            }
        }
        all
    }

    /// Lines that differ from `before`, with their current state.
    pub fn changes(self, before: Self) -> impl Iterator<Item = (IntxLine, bool)> {
        let changed = IntxLine::ALL.into_iter().filter(move |&line| self.has(line) != before.has(line));
        changed.map(move |line| (line, self.has(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines() -> impl Strategy<Value = IntxLines> {
        (0u8..16).prop_map(IntxLines)
    }

    #[test]
    fn pins_are_lines_and_devices_shift_them() {
        assert_eq!(IntxLine::from_pin(0), None);
        assert_eq!(IntxLine::from_pin(5), None);
        assert_eq!(IntxLine::from_pin(4), Some(IntxLine::D));
        assert_eq!(IntxLine::A.above(0), IntxLine::A);
        assert_eq!(IntxLine::B.above(3), IntxLine::A);
        assert_eq!(IntxLine::D.above(6), IntxLine::B);
    }

    proptest! {
        #[test]
        fn a_line_above_is_active_if_one_below_is(below in proptest::collection::vec((0u8..32, lines()), 0..5)) {
            let above = IntxLines::above(below.iter().copied());
            for line in IntxLine::ALL {
                let any = |&(device, own): &(u8, IntxLines)| IntxLine::ALL.iter().any(|l| own.has(*l) && l.above(device) == line);
                prop_assert_eq!(above.has(line), below.iter().any(any));
            }
        }

        #[test]
        fn changes_lead_from_one_state_to_the_other(before in lines(), after in lines()) {
            let mut now = before;
            after.changes(before).for_each(|(line, active)| now.set(line, active));
            prop_assert_eq!(now, after);
        }
    }
}
