//! What exits, virtual NICs and virtual disks cost.

use platform::costs;

costs! {
    /// Costs of the hypervisor's parts, in cycles of the host's cores.
    VirtCosts in "virt_cost" {
    /// Leaving the guest and entering it again.
    exit,
    /// What user space does for an access to configuration space or to emulated registers, beyond the exit.
    emulate,
    /// Giving a vCPU an interrupt.
    inject,
    /// An interrupt handler's write to an eventfd that a vCPU's interrupt hangs on.
    eventfd,
    /// A lender's handler that passes an interrupt of a function on to the host whose guest has it, beside its write to that host's
    /// doorbell.
    forward,
    /// From one core's kick until another has left its guest: an interrupt between cores.
    kick,
    }
}

costs! {
    /// What the hypervisor's part of the way of a packet or a disk's request costs, in cycles of the host's cores; copies, rings, the
    /// host's block layer and drivers cost by themselves.
    VhostCosts in "vhost_cost" {
        /// To find the port of a packet.
        switch,
        /// To give a packet to a guest.
        receive,
        /// To take a packet of a guest.
        send,
        /// To take a request of a guest's disk.
        request,
        /// To answer one.
        answer,
        /// To interrupt a guest.
        interrupt,
        /// Of the exit's handler that wakes a context.
        kick,
        /// A turn of a context apart from its packets.
        turn,
    }
}
