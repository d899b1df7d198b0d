//! What exits, virtual NICs and virtual disks cost.

macro_rules! costs {
    ($(#[$about:meta])* $costs:ident { $($(#[$doc:meta])* $name:ident = $value:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $costs {
            /// KVM and vhost-net on Haswell or Broadwell, as `machines/kernels/linux.toml` has them with their sources.
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
    /// Costs of the hypervisor's parts, in cycles of the host's cores.
    VirtCosts {
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
}

costs! {
    /// What the hypervisor's part of the way of a packet or a disk's request costs, in cycles of the host's cores; copies, rings, the
    /// host's block layer and drivers cost by themselves.
    VhostCosts {
        /// To find the port of a packet.
        switch = 400,
        /// To give a packet to a guest.
        receive = 700,
        /// To take a packet of a guest.
        send = 700,
        /// To take a request of a guest's disk.
        request = 700,
        /// To answer one.
        answer = 300,
        /// To interrupt a guest.
        interrupt = 400,
        /// Of the exit's handler that wakes a context.
        kick = 400,
        /// A turn of a context apart from its packets.
        turn = 200,
    }
}
