//! One test for each clause, named by it (NVM Express Base Specification 1.4c), on both back-ends.
//!
//! Where revision 2.0 has them: the base specification unless it says NVM (NVM Command Set Specification 1.0).
//!
//! | subject | 1.4 | 2.0 |
//! |---|---|---|
//! | registers: capabilities, configuration, status, resets | 3.1 | 3.1.3, 3.7 |
//! | doorbells, queues, phase, identifiers | 3.1.24, 4.1, 4.2, 4.6 | 3.3 |
//! | PRPs, SGLs | 4.3, 4.4 | 4.1.1, 4.1.2 |
//! | controller memory buffer | 4.7 | 8.5 |
//! | arbitration | 4.13 | 3.4.4 |
//! | abort, asynchronous events | 5.1, 5.2 | 5.1, 5.2 |
//! | I/O queues made and deleted | 5.3 to 5.6 | 5.4 to 5.7 |
//! | get features, log pages, identify | 5.13 to 5.15 | 5.15 to 5.17 |
//! | namespaces attached, set features, format | 5.19, 5.21, 5.23 | 5.22, 5.27, 5.14 |
//! | compare, dataset management | 6.6, 6.7 | NVM 3.2.1, 3.2.3 |
//! | flush | 6.8 | 7.1 |
//! | read, write, write zeroes | 6.9, 6.15, 6.17 | NVM 3.2.4, 3.2.6, 3.2.8 |
//! | interrupts | 7.5 | in the PCIe Transport Specification |
//! | failed controllers | 9.5 | 9.5 |
//! | several ports | 1.4 | 2.4.1 |

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
            $( #[test] fn $name() { super::$name($crate::clauses::on_bench()); } )*
        }
        mod on_fabric {
            $( #[test] fn $name() { super::$name($crate::clauses::on_fabric()); } )*
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
