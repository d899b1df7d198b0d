//! Tables and commands of Arm's SMMUv3: what an SMMU reads and a kernel writes. Section numbers refer to the *Arm System Memory
//! Management Unit Architecture Specification, version 3* (IHI 0070), those of descriptors to the *Arm Architecture Reference
//! Manual* (DDI 0487), VMSAv8-64.
//!
//! Domains are stage 1, of one context descriptor for each function, as Linux gives them to drivers. Substreams (PASID) and stage 2
//! are not used here, and the granule is 4 KiB.
//!
//! | file | subject |
//! |---|---|
//! | `stream` | stream table entries and context descriptors |
//! | `page` | translation table descriptors |
//! | `command` | commands |

pub mod command;
pub mod page;
pub mod stream;
