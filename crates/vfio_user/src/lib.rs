//! The vfio-user protocol, server side: a PCI function for a virtual machine, served by another process.
//!
//! The protocol is the kernel's VFIO interface as messages over a Unix socket (QEMU, docs/interop/vfio-user.rst). The
//! client, a virtual machine monitor, reads and writes regions (BARs, configuration space), maps its memory for DMA by
//! passing file descriptors, and passes eventfds for interrupts.
//!
//! * [`request`]: requests as values, read from bytes of any content, and their answers;
//! * [`socket`]: messages with file descriptors over a socket;
//! * [`maps`]: the client's memory, as a function may access it;
//! * [`serve`]: what a function answers: the checks of the protocol in front of a [`ServedFunction`].
//!
//! A client's memory is read and written by file operations, and never mapped: a file that becomes shorter is an error
//! and no signal.

#![forbid(unsafe_code)]

pub mod maps;
pub mod request;
pub mod serve;
pub mod socket;

pub use maps::{ClientMemory, DmaMap};
pub use request::{VfioRefusal, VfioRequest};
pub use serve::{ServedFunction, answer};
pub use socket::{VfioMessage, VfioSocket};
