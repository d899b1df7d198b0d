//! What tests of this module run.

use ::machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

use super::Bench;

/// A T430 with an NFP-6000, behind the IOMMU with pages of 4 KiB.
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

/// Transfers of 64 B at random places of a window that the host has warmed.
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
