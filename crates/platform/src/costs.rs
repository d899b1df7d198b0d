//! Default CPU costs and settings of a kernel: the figures of `machines/kernels/linux.toml`, read at compile time. So
//! tests and defaults have the same values as scenarios, and each figure is written only once.

const FILE: &[u8] = include_bytes!("../linux.toml");

/// Units of the file, converted to cycles, bytes or picoseconds.
const UNITS: [(&str, u64); 9] = [
    (" cycles", 1),
    (" B", 1),
    (" KiB", 1 << 10),
    (" MiB", 1 << 20),
    (" GiB", 1 << 30),
    (" ns", 1_000),
    (" us", 1_000_000),
    (" ms", 1_000_000_000),
    (" s", 1_000_000_000_000),
];

/// A figure of the file's `table` (empty for the top level) in cycles, bytes or picoseconds. Plain numbers are
/// unchanged, and `true` is 1.
///
/// # Panics
/// If there is no such figure, or it is not written as a whole number, with one of the [`UNITS`], `true` or `false`; a
/// compile error when called in a `const` block.
pub const fn linux(table: &str, key: &str) -> u64 {
    let (mut at, mut is_inside) = (0, table.is_empty());
    while at < FILE.len() {
        if FILE[at] == b'[' {
            is_inside = is_at(at + 1, table) && FILE[at + 1 + table.len()] == b']';
        } else if is_inside && is_at(at, key) && is_at(at + key.len(), " = ") {
            return value(at + key.len() + 3);
        }
        while at < FILE.len() && FILE[at] != b'\n' {
            at += 1;
        }
        at += 1;
    }
    panic!("machines/kernels/linux.toml has no such figure")
}

const fn value(mut at: usize) -> u64 {
    if is_at(at, "{ value = ") {
        at += "{ value = ".len();
    }
    if is_at(at, "true") {
        return 1;
    }
    if is_at(at, "false") {
        return 0;
    }
    let is_text = FILE[at] == b'"';
    if is_text {
        at += 1;
    }
    let (mut number, first) = (0, at);
    while FILE[at].is_ascii_digit() {
        number = 10 * number + (FILE[at] - b'0') as u64;
        at += 1;
    }
    assert!(at > first, "a figure that is no number");
    let mut unit = 0;
    while unit < UNITS.len() {
        let (name, scale) = UNITS[unit];
        if is_at(at, name) && FILE[at + name.len()] == b'"' {
            return number * scale;
        }
        unit += 1;
    }
    assert!(
        !is_text && matches!(FILE[at], b',' | b' ' | b'\n' | b'}'),
        "a figure in a form that is not read here"
    );
    number
}

/// Whether the file has `text` at this position.
const fn is_at(at: usize, text: &str) -> bool {
    let text = text.as_bytes();
    let mut n = 0;
    while n < text.len() {
        if at + n >= FILE.len() || FILE[at + n] != text[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// A table of CPU costs that a kernel file has.
pub trait CostTable: Sized {
    /// Its name there.
    const TABLE: &'static str;
    /// The names of all costs.
    const NAMES: &'static [&'static str];

    /// Costs with the value that `cycles` returns for each name.
    ///
    /// # Errors
    /// The first name without a value.
    fn by_name(cycles: impl FnMut(&str) -> Option<u64>) -> Result<Self, &'static str>;
}

/// Declares a table of CPU costs in cycles, with the names used in kernel files.
#[macro_export]
macro_rules! costs {
    ($(#[$about:meta])* $costs:ident in $table:literal { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $costs {
            /// Costs of Linux on x86, from `machines/kernels/linux.toml`, which gives their sources.
            pub const fn linux() -> Self {
                Self { $($name: const { $crate::costs::linux($table, stringify!($name)) },)* }
            }

            /// No costs, to see those of the hardware alone.
            pub const fn none() -> Self {
                Self { $($name: 0,)* }
            }
        }

        impl $crate::costs::CostTable for $costs {
            const TABLE: &'static str = $table;
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            fn by_name(mut cycles: impl FnMut(&str) -> Option<u64>) -> Result<Self, &'static str> {
                Ok(Self { $($name: cycles(stringify!($name)).ok_or(stringify!($name))?,)* })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::linux;

    #[test]
    fn figures_are_those_of_the_file_in_units_of_their_own() {
        assert_eq!((linux("cost", "page"), linux("cost", "page_slow")), (100, 130));
        assert_eq!((linux("virt_cost", "kick"), linux("vhost_cost", "kick")), (2500, 400));
        assert_eq!(
            (linux("block", "read_ahead"), linux("scheduler", "latency")),
            (128 << 10, 24_000_000_000)
        );
        assert_eq!(
            (linux("dma", "low_first"), linux("steering", "rfs"), linux("steering", "entries")),
            (1, 0, 32768)
        );
    }

    #[test]
    #[should_panic(expected = "no such figure")]
    fn a_figure_of_another_table_is_none() {
        linux("block", "page_slow");
    }
}
