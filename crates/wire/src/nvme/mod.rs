//! NVM Express: controller registers, queue entries, data pointers, identify data, log pages, features.
//!
//! Section numbers and titles in quotation marks refer to the NVM Express Base Specification, revision 1.4. All types
//! work in both directions: `parse` takes any bytes, `emit` returns the bytes again.

pub mod admin;
mod bytes;
pub mod command;
pub mod completion;
pub mod event;
pub mod feature;
pub mod identify;
pub mod io;
pub mod log;
pub mod pointer;
pub mod registers;
pub mod ring;
pub mod status;

pub use admin::AdminCommand;
pub use command::{Command, DataTransfer};
pub use completion::CompletionEntry;
pub use event::AsyncEvent;
pub use feature::Feature;
pub use identify::{IdentifyController, IdentifyNamespace};
pub use io::IoCommand;
pub use pointer::{DataPointer, SglDescriptor, SglKind};
pub use registers::{AdminQueues, Capabilities, Configuration, ControllerStatus};
pub use ring::{CompletionRing, SubmissionRing};
pub use status::Status;

/// Class code of an NVMe controller: mass storage, non-volatile memory, NVM Express (section 2.1.5).
pub const CLASS: u32 = 0x01_0802;
/// Addresses all namespaces at once.
pub const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// Bytes of an identify data structure, and of every list of identifiers.
pub const IDENTIFY_LEN: usize = 4096;

#[cfg(test)]
mod tests;
