//! What a virtual machine is made of, and why it cannot be made.

use kernel::KernelParams;
use platform::Error;
use platform::cpu::CpuId;
use units::Bytes;
use wire::pcie::FunctionAddress;

use crate::costs::VirtCosts;
use crate::interrupts::InterruptSupport;
use crate::memory::GuestNode;

/// Parameters of a virtual machine.
#[derive(Clone, Debug)]
pub struct VmParams {
    /// Name prefix of its tasks.
    pub name: String,
    /// For each vCPU, the host cores that it may use.
    pub vcpus: Vec<Vec<CpuId>>,
    /// Memory by node.
    pub nodes: Vec<GuestNode>,
    /// Empty slots for hot-plug.
    pub slots: u8,
    /// Limit of memory pinned for devices (Linux: `RLIMIT_MEMLOCK`); all of it if `None`.
    pub pin_limit: Option<Bytes>,
    /// Hardware support for its interrupts.
    pub interrupts: InterruptSupport,
    /// CPU costs of exits.
    pub costs: VirtCosts,
    /// Boot parameters of its kernel.
    pub kernel: KernelParams,
}

/// Why a virtual machine cannot be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VmError {
    /// The node lacks the memory.
    Memory(Error),
    /// A function cannot be passed through. Without an IOMMU that is on, it could access all of the host's
    /// memory.
    Function(FunctionAddress, Error),
}

impl std::fmt::Display for VmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "cannot allocate its memory: {error}"),
            Self::Function(at, Error::NotSupported) => {
                write!(f, "{at} cannot be passed through: the host's IOMMU is off")
            }
            Self::Function(at, Error::Busy) => {
                write!(f, "{at} cannot be passed through: its IOMMU group is in use")
            }
            Self::Function(at, error) => write!(f, "{at} cannot be passed through: {error}"),
        }
    }
}

impl std::error::Error for VmError {}
