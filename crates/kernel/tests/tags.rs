//! How many reads a device may have outstanding is what firmware and kernel agree with it and the root port.

use crate::common::{Model, machine_of, params};
use kernel::DmaMode;
use platform::device::PortIndex;
use units::Iova;
use wire::pcie::Generation;

/// Copies 256 KiB, which takes 512 reads of 512 B; gives the most that were outstanding at once.
fn most_reads(generation: Generation, ten_bit_tags: bool) -> u16 {
    const LENGTH: usize = 256 << 10;
    let model = Model { generation, ten_bit_tags, ..Model::default() };
    let machine = machine_of(params(DmaMode::Off), model);
    machine.boot();
    let copier = machine.copier(0);
    let (expected, copied) = machine.run(1, move |cpu| {
        Box::pin(async move {
            let memory = copier.dma.alloc_coherent(&cpu, 2 * LENGTH as u64, None).unwrap();
            let pattern: Vec<u8> = (0..LENGTH).map(|n| (n / 512) as u8 ^ n as u8).collect();
            cpu.store(memory.cpu, &pattern);
            let target = Iova::new(memory.bus.get() + LENGTH as u64);
            copier.copy(&cpu, memory.bus, target, LENGTH as u64, 0).await.unwrap();
            let mut copied = vec![0; LENGTH];
            cpu.load(memory.cpu + LENGTH as u64, &mut copied);
            (pattern, copied)
        })
    });
    assert!(expected == copied, "{generation}: bytes of one read are not another's");
    machine.simulation.with(|fabric, _| {
        let requester = &fabric.endpoint(machine.copiers[0]).core.requester(PortIndex(0));
        assert_eq!(requester.tags_in_use(), 0);
        requester.counters().most_tags
    })
}

#[test]
fn ten_bit_tags_are_used_where_both_ends_know_them() {
    for generation in [Generation::Gen4, Generation::Gen5] {
        let most = most_reads(generation, true);
        assert!((257..=768).contains(&most), "{generation}: {most}");
    }
}

#[test]
fn eight_bits_remain_where_one_end_knows_no_more() {
    assert_eq!(most_reads(Generation::Gen5, false), 256, "the device does not");
    assert_eq!(
        most_reads(Generation::Gen3, true),
        256,
        "a root port of that generation does not answer them"
    );
}
