//! Tables of what code costs, in cycles: fields that files call by their names.

macro_rules! costs {
    ($(#[$about:meta])* $table:ident { $($(#[$doc:meta])* $name:ident = $value:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $table {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $table {
            /// The figures of Linux, as `machines/kernels/linux.toml` has them with their sources.
            pub const fn linux() -> Self {
                Self { $($name: $value,)* }
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

pub(crate) use costs;
