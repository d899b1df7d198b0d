//! Isolation: who may have a function of a host, and what the function reaches then.
//!
//! The only place that decides it. Files are checked against it, the lender and the hypervisor obey it, reports and the
//! table in the documentation say it, and `crates/lending/tests/isolation_table.rs` attacks it.

use std::fmt;

use crate::DmaMode;

/// Who has a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionHolder {
    /// Another host, whose IOMMU is in this mode.
    Host(DmaMode),
    /// A guest of another host, whose IOMMU is in this mode. Guests have no IOMMU of their own.
    RemoteGuest(DmaMode),
    /// A guest of its own host.
    OwnGuest,
}

/// What a function reaches of a host's memory and interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReachExtent {
    /// Nothing.
    Nothing,
    /// The guest's memory, and the guest's interrupts.
    Guest,
    /// What the drivers of all functions that the host has borrowed have mapped, since these share a domain, and the
    /// function's own interrupts. With a lazy IOMMU, also for a while what the drivers have unmapped.
    Mapped,
    /// All memory, and the function's own interrupts.
    Memory,
    /// All memory, and every interrupt of every core.
    Everything,
}

/// What a function reaches, rogue or not, besides registers of functions that the same holder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionReach {
    /// Of its own host, also other devices and every window of the NTB adapter if it is [`ReachExtent::Everything`].
    pub of_own: ReachExtent,
    /// Of its holder's host.
    pub of_holder: ReachExtent,
}

/// Why somebody may not have a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsolationRefusal {
    /// Nothing would keep the function from what is not the guest's: the function's host has no IOMMU that is on.
    Unconfined,
    /// The guest's memory is scattered, and its host's IOMMU does not translate the NTB adapter's requests.
    Scattered,
}

impl IsolationRefusal {
    /// What to change, by the names of the function's host and the guest's.
    pub fn remedy(self, own: &str, guests: &str) -> String {
        let host = match self {
            Self::Unconfined => own,
            Self::Scattered => guests,
        };
        format!("give host `{host}` `iommu = \"strict\"`")
    }
}

impl fmt::Display for IsolationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unconfined => "without an IOMMU nothing keeps it from what is not the guest's",
            Self::Scattered => "the host's IOMMU does not make one row of a guest's memory",
        })
    }
}

impl DmaMode {
    /// Whether the IOMMU is on, so that a function can have a domain of its own and interrupts are remapped. That is so
    /// with `pass-through`, too, which is about functions of the host's own drivers.
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the IOMMU translates the addresses of functions of the host's own drivers.
    pub const fn translates(self) -> bool {
        matches!(self, Self::Strict | Self::Lazy)
    }
}

/// Whether `holder` may have a function of a host whose IOMMU is in mode `own`, and what the function reaches then.
///
/// # Errors
/// If a guest could not be given the function without more.
pub const fn isolation(own: DmaMode, holder: FunctionHolder) -> Result<FunctionReach, IsolationRefusal> {
    let of_own = if own.is_on() { ReachExtent::Nothing } else { ReachExtent::Everything };
    match holder {
        FunctionHolder::Host(mode) => Ok(FunctionReach {
            of_own,
            of_holder: match mode {
                DmaMode::Strict | DmaMode::Lazy => ReachExtent::Mapped,
                DmaMode::PassThrough => ReachExtent::Memory,
                DmaMode::Off => ReachExtent::Everything,
            },
        }),
        FunctionHolder::OwnGuest | FunctionHolder::RemoteGuest(_) if !own.is_on() => {
            Err(IsolationRefusal::Unconfined)
        }
        FunctionHolder::OwnGuest => {
            Ok(FunctionReach { of_own: ReachExtent::Guest, of_holder: ReachExtent::Guest })
        }
        FunctionHolder::RemoteGuest(mode) if !mode.translates() => Err(IsolationRefusal::Scattered),
        FunctionHolder::RemoteGuest(_) => Ok(FunctionReach { of_own, of_holder: ReachExtent::Guest }),
    }
}
