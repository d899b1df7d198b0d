//! Examples for the tests of this module.

use ::machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

use super::Bench;

/// A T430 with an NFP-6000, with the IOMMU on and 4 KiB pages.
pub fn bench() -> Bench {
    let library = Library::built_in();
    Bench {
        machine: Doc::<Machine>::load(&library, "dell-t430").unwrap().read().unwrap(),
        card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
        sockets: Sockets { device: 0, memory: 0, warming: 0 },
        iommu: IommuMode::Pages4k,
        seed: 1,
    }
}

/// 64 B transfers at random offsets of a host-warm window.
pub fn run(test: Test, window: Bytes) -> Run {
    Run {
        test,
        pattern: Pattern::Random,
        cache: Cache::HostWarm,
        host_offset: 0,
        device_offset: 0,
        window,
        transfer: Bytes::new(64),
    }
}
