//! CPU costs of exits, virtual NICs and virtual disks.

use platform::costs;

costs! {
    /// Hypervisor costs, in cycles of the host's cores.
    VirtCosts in "virt_cost" {
    /// To leave the guest and enter it again.
    exit,
    /// User-space work for an access to configuration space or emulated registers, on top of the exit.
    emulate,
    /// To inject an interrupt into a vCPU.
    inject,
    /// An interrupt handler's write to the eventfd of a vCPU's interrupt.
    eventfd,
    /// A lender's interrupt handler that forwards an interrupt to the host of the borrowing guest, on top of the
    /// doorbell write.
    forward,
    /// From a kick of another core until it has left its guest: an IPI.
    kick,
    }
}

costs! {
    /// Hypervisor costs per packet or disk request, in cycles of the host's cores. Copies, rings, the host's block
    /// layer and drivers are charged separately.
    VhostCosts in "vhost_cost" {
        /// To look up the port of a packet.
        switch,
        /// To pass a packet to a guest.
        receive,
        /// To take a packet from a guest.
        send,
        /// To take a disk request from a guest.
        request,
        /// To complete a disk request.
        answer,
        /// To interrupt a guest.
        interrupt,
        /// The exit handler that wakes an I/O thread.
        kick,
        /// One pass of an I/O thread, without its packets.
        turn,
    }
}
