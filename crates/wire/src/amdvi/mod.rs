//! Tables and commands of AMD's IOMMU: what it reads and a kernel writes. Section numbers refer to the *AMD I/O Virtualization
//! Technology (IOMMU) Specification* (48882).
//!
//! Domains have host page tables (version 1), as Linux gives them to drivers; guest tables are not used here.
//!
//! | file | subject |
//! |---|---|
//! | `device` | device table entries |
//! | `page` | page table entries |
//! | `command` | commands |

pub mod command;
pub mod device;
pub mod page;
