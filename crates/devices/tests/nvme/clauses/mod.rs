//! One test for each clause, named by it (NVM Express Base Specification, revision 1.4), on both back-ends.
//!
//! Where revision 2.0 has them: the base specification unless it says NVM (NVM Command Set Specification 1.0). A number stands
//! where a public text that cites the specification has it too (contents of revisions 1.3 and 2.2, sources of Linux, QEMU, SPDK
//! and Fuchsia); of the others there is the title.
//!
//! | subject | 1.4 | 2.0 |
//! |---|---|---|
//! | registers: capabilities, configuration, status | 3.1 | 3.1.3 |
//! | resets | 7.3 | "Resets" |
//! | doorbells, queues, phase, identifiers | 4.1, 4.2, 4.6 | "NVM Queue Models", 3.3.3.1 |
//! | PRPs, SGLs | 4.3, 4.4 | "Physical Region Page Entry and List", "Scatter Gather List" |
//! | controller memory buffer | 4.7 | "Controller Memory Buffer" |
//! | arbitration | "Command Arbitration" | "Command Arbitration" |
//! | abort, asynchronous events | 5.1, 5.2 | 5.1, 5.2 |
//! | I/O queues made and deleted | 5.3 to 5.6 | 5.4 to 5.7 |
//! | get features, log pages, identify | 5.13 to 5.15 | 5.15 to 5.17 |
//! | namespaces attached, set features, format | 5.19, 5.21, 5.23 | 5.22, 5.27, 5.14 |
//! | compare, dataset management | 6.6, 6.7 | NVM 3.2.1, 3.2.3 |
//! | flush | 6.8 | 7.1 |
//! | read, write, write zeroes | 6.9, 6.15, 6.17 | NVM 3.2.4, 3.2.6, 3.2.8 |
//! | interrupts | 7.5 | in the PCIe Transport Specification |
//! | enabling and shutting down | 7.6 | "Controller Initialization", "Shutdown Processing" |
//! | failed controllers | 9.5 | "Controller Fatal Status Condition" |
//! | several ports | 1.4 | "Multi-Path I/O and Namespace Sharing" |

mod admin;
mod controller;
mod io;

use devices::nvme::NvmeParams;
use wire::nvme::DataPointer;

use super::driver::Driver;

/// Tests that are run on both back-ends; what they are handed is a driver of a drive that has been switched on.
#[macro_export]
macro_rules! clauses {
    ($( $(#[$attribute:meta])* fn $name:ident($driver:ident) $body:block )*) => {
        $( $(#[$attribute])* #[allow(unused_mut)] fn $name(mut $driver: Driver) $body )*
        mod on_bench {
            $( #[test] fn $name() { super::$name($crate::nvme::clauses::on_bench()); } )*
        }
        mod on_fabric {
            $( #[test] fn $name() { super::$name($crate::nvme::clauses::on_fabric()); } )*
        }
    };
}

fn on_bench() -> Driver {
    Driver::on_bench(NvmeParams::example())
}

fn on_fabric() -> Driver {
    Driver::on_fabric(NvmeParams::example())
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed).collect()
}

fn prp(first: u64) -> DataPointer {
    DataPointer::Prp { first, second: 0 }
}
