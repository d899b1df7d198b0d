//! PCI Express: packets, framing and configuration space.
//!
//! Section and table numbers refer to the PCI Express Base Specification,
//! revision 5.0, unless another document is named.

pub mod config;
pub mod crc;
pub mod dllp;
pub mod frame;
pub mod id;
pub mod intx;
pub mod link;
pub mod ordering;
pub mod split;
pub mod tlp;

pub use dllp::{Dllp, Sequence};
pub use id::{Bdf, FunctionAddress, Segment};
pub use intx::{IntxLine, IntxLines};
pub use link::{Framing, Generation, Width};
pub use ordering::{OrderingKey, Passing, may_pass};
pub use split::{split_completion, split_read};
pub use tlp::{
    AddressType, Common, CompletionHeader, CompletionStatus, ConfigRequest, ConfigType, FlowClass, IoRequest,
    MemoryRequest, Message, MessageCode, Routing, Tlp, TlpError, TlpKind,
};
