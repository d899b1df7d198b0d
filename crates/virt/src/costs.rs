//! What exits cost.

use units::Duration;

/// Costs of the hypervisor's parts, in cycles of the host's cores unless another unit is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtCosts {
    /// Leaving the guest and entering it again. 2,000 on an X5570 (SplitX, HotPar 2011); 1,600 to 1,700 for the shortest round
    /// trip on an i7-3960X (yshalabi.github.io/VMExits).
    pub exit: u64,
    /// What user space does for an access to configuration space or to an MSI-X table, beyond the exit: with a host's exit an
    /// answer took 10,400 cycles in all (TUM-DSE CVM_eval, Emerald Rapids; TDX, so an upper bound).
    pub emulate: u64,
    /// Giving a vCPU an interrupt (assumed: part of the way through the kernel to the entry).
    pub inject: u64,
    /// An interrupt handler's write to an eventfd that a vCPU's interrupt hangs on (assumed: a wake-up's lock and list).
    pub eventfd: u64,
    /// From one core's kick until another has left its guest: an interrupt between cores, of which 2.24 us are sent, run and
    /// acknowledged in a guest (Linux commit 4180bf1b655a); the way there is about half.
    pub kick: Duration,
    /// Entries of a core's second-level TLB (Intel optimisation manual, Haswell: 1,024).
    pub tlb: usize,
}

impl VirtCosts {
    /// KVM on a Haswell or Broadwell.
    pub const fn kvm() -> Self {
        Self {
            exit: 1_700,
            emulate: 8_700,
            inject: 300,
            eventfd: 400,
            kick: Duration::from_ns(1_000),
            tlb: 1024,
        }
    }
}
