//! What exits cost.

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident = $value:expr,)*) => {
        /// Costs of the hypervisor's parts, in cycles of the host's cores.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct VirtCosts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl VirtCosts {
            /// KVM on Haswell or Broadwell, as `machines/kernels/linux.toml` has it with its sources.
            pub const fn linux() -> Self {
                Self { $($name: $value,)* }
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

costs! {
    /// Leaving the guest and entering it again (facts of an X5570 and an i7-3960X).
    exit = 1_700,
    /// What user space does for an access to configuration space or to emulated registers, beyond the exit.
    emulate = 8_700,
    /// Giving a vCPU an interrupt (assumed: part of the way through the kernel to the entry).
    inject = 300,
    /// An interrupt handler's write to an eventfd that a vCPU's interrupt hangs on (assumed: a wake-up's lock and list).
    eventfd = 400,
    /// A lender's handler that passes an interrupt of a function on to the host whose guest has it, beside its write to that host's
    /// doorbell (assumed: finding out whose it is).
    forward = 200,
    /// From one core's kick until another has left its guest: an interrupt between cores.
    kick = 2_500,
}
