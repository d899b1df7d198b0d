//! What a kernel's code costs and how it is set up, where nobody says otherwise: the figures of `machines/kernels/linux.toml`, which
//! are read from there when the program is compiled. Tests and defaults thus have what scenarios have, and no figure stands twice.

const FILE: &[u8] = include_bytes!("../linux.toml");

/// Units of the file, as cycles, bytes or picoseconds.
const UNITS: [(&str, u64); 6] = [
    (" cycles", 1),
    (" KiB", 1 << 10),
    (" MiB", 1 << 20),
    (" GiB", 1 << 30),
    (" ms", 1_000_000_000),
    (" s", 1_000_000_000_000),
];

/// A figure of the file's `table`, none for its top, in cycles, bytes or picoseconds; plain numbers as they are, and 1 for `true`.
///
/// # Panics
/// If the file has no such figure, which stops the compiler where this is called in a `const` block.
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
    if FILE[at] == b'"' {
        at += 1;
    }
    if is_at(at, "true") {
        return 1;
    }
    let mut number = 0;
    while FILE[at].is_ascii_digit() {
        number = 10 * number + (FILE[at] - b'0') as u64;
        at += 1;
    }
    let mut unit = 0;
    while unit < UNITS.len() {
        let (name, scale) = UNITS[unit];
        if is_at(at, name) && FILE[at + name.len()] == b'"' {
            return number * scale;
        }
        unit += 1;
    }
    number
}

/// Whether the file goes on with `text` there.
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

/// A table of what code costs, in cycles, by the names that a table of kernel files has.
#[macro_export]
macro_rules! costs {
    ($(#[$about:meta])* $costs:ident in $table:literal { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $costs {
            /// The costs of Linux on x86, as `machines/kernels/linux.toml` has them with their sources.
            pub const fn linux() -> Self {
                Self { $($name: const { $crate::costs::linux($table, stringify!($name)) },)* }
            }

            /// No costs at all, to see those of the hardware alone.
            pub const fn none() -> Self {
                Self { $($name: 0,)* }
            }

            /// The names of all costs, as files spell them.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The costs that `cycles` gives for each name.
            ///
            /// # Errors
            /// The first name for which there is none.
            pub fn by_name(mut cycles: impl FnMut(&str) -> Option<u64>) -> Result<Self, &'static str> {
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
        assert_eq!((linux("cost", "page"), linux("cost", "page_slow")), (100, 400));
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
