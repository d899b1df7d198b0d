//! What a lent function can reach.

use crate::common::Cluster;
use kernel::DmaMode;
use units::{Duration, Iova};

/// Random addresses that a device of 46 bits could name, below what windows have.
fn addresses(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match n % 4 {
            // Where the lender's memory is, its interrupt controllers, anywhere.
            0 => state & 0x3fff_f000,
            1 => 0xfee0_0000 | state & 0xf_f000,
            2 => 0x1_0000_0000 | state & 0x3fff_f000,
            _ => state >> 18 & !0xfff,
        }
    })
}

#[test]
fn with_the_lenders_iommu_on_a_rogue_function_reaches_its_windows_alone() {
    /// Of reads, and as many writes.
    const ATTEMPTS: u64 = 100_000;
    let cluster = Cluster::new(&[DmaMode::Strict, DmaMode::Strict], 1);
    cluster.borrow(0, 1, 0).unwrap();
    // It does what it is for. Not afterwards: its driver would be told of writes that it has not asked for.
    assert!(cluster.copies(0, 0x77));
    let copier = cluster.copier(0);
    // Those of the function itself, which tells of each write, are its own.
    let interrupts = |host: usize| -> u64 {
        let all = cluster.hosts[host].kernel.interrupts();
        all.iter().filter(|i| !["ntb", "copier"].contains(&&*i.1)).map(|i| i.3).sum()
    };
    let window = copier.memory.bus.get() & !((1 << 28) - 1);
    let (before, rings) = ((cluster.read(), cluster.written()), [interrupts(0), interrupts(1)]);
    let mut attempts = 0;
    for (n, at) in (0u64..).zip(addresses(2 * ATTEMPTS)) {
        if at >= window && at < window + (64 << 30) {
            continue;
        }
        attempts += 1;
        cluster.reaches_for(1, at, n / 4 % 2 == 0);
        cluster.run_for(Duration::from_us(1));
    }
    assert!(attempts > ATTEMPTS);
    assert_eq!((cluster.read(), cluster.written()), before, "no byte of memory was read or written");
    assert_eq!([interrupts(0), interrupts(1)], rings, "nobody was interrupted");
    let faults: u64 = cluster.hosts[1].kernel.iommu_faults().iter().map(|(_, count)| count).sum();
    assert!(faults >= attempts * 9 / 10, "{faults} of {attempts} are counted");
}

#[test]
fn addresses_past_the_dma_api_fail_visibly() {
    let cluster = Cluster::new(&[DmaMode::Off, DmaMode::Strict], 1);
    cluster.borrow(0, 1, 0).unwrap();
    let copier = cluster.copier(0);
    let outcome = cluster.run(0, move |cpu| {
        Box::pin(async move {
            // What a driver that takes physical addresses for bus addresses would do.
            let wrong = Iova::new(copier.memory.cpu.0);
            copier.copy(&cpu, wrong, wrong, 64, 3).await.is_err()
        })
    });
    assert!(outcome);
    assert!(!cluster.hosts[1].kernel.iommu_faults().is_empty());
}
