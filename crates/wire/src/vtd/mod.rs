//! Tables, queue entries and interrupt messages of Intel's VT-d: what an IOMMU reads and a kernel writes. Section numbers
//! refer to the *Intel Virtualization Technology for Directed I/O Architecture Specification*, legacy mode.
//!
//! | file | subject |
//! |---|---|
//! | `entries` | root, context and page table entries |
//! | `tables` | software's side: building and editing tables, of the other formats as well |
//! | `interrupt` | messages, interrupt remapping table entries, posted interrupts |
//! | `invalidation` | invalidation descriptors |
//! | `fault` | fault reasons |
//! | `ids` | identifiers, page sizes, permissions |

mod entries;
mod fault;
mod ids;
mod interrupt;
mod invalidation;
pub mod tables;

pub use entries::{ContextEntry, Features, PageEntry, RootEntry, TranslationType, entry_offset, level_shift};
pub use fault::FaultReason;
pub use ids::{Access, DomainId, PageSize, Permissions, TableFormat};
pub use interrupt::{
    Delivery, DeliveryMode, Interrupt, InterruptEntry, InterruptTable, MsiMessage, PostedDescriptor,
    PostedInterrupt, SourceCheck,
};
pub use invalidation::{ContextScope, InvalidationDescriptor, Scope};
