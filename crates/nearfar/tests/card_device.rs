//! A card's DMA engine as a character device, as with Xilinx's xdma: `dd` from it and to it.

use crate::scenario::{HEAD, host, loaded, program};
use nearfar::computer;
use nearfar::counters::{Binding, Kind};
use nearfar::progress::Silent;

/// The rate in GB/s at which `dd` with these operands goes, bytes that the card read and wrote, and what binds.
fn copied(keys: &str, operands: &str) -> (f64, [u64; 2], Binding) {
    let card = format!("{keys}\n[[host.device]]\ncard = \"netfpga\"\nname = \"fpga\"");
    let text = [HEAD, &host("a", "dell-t430", &card), &program("a", "0", &format!("dd {operands}"))];
    let counts = computer::run_counted(&loaded(&text.concat()), &Silent).unwrap();
    let report = counts.done[0].outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    let window = &counts.counted[0].window;
    let moved = ["read", "written"].map(|way| window.host("a").unwrap().of(&format!("fpga/dma-{way}")));
    (report.get("rate").unwrap() / 1e3, moved, window.binding("a"))
}

/// Large requests fill the link, Gen3 x8, which carries some 7.9 GB/s; small ones wait for the driver.
#[test]
fn large_requests_fill_the_link_and_small_ones_wait_for_the_driver() {
    let from = "if=/dev/xdma0_c2h_0 of=/dev/null";
    let (large, moved, binding) = copied("", &format!("{from} bs=4M count=4"));
    assert!(6.0 < large && large < 7.9, "{large:.2} GB/s");
    assert_eq!(moved, [0, 16 << 20]);
    assert!(binding.kind() == Some(Kind::Link), "{binding}");
    let (small, _, binding) = copied("", &format!("{from} bs=4k count=256"));
    assert!(small < 0.5 * large, "{small:.2} GB/s");
    assert!(binding.kind() != Some(Kind::Link), "{binding}");
}

#[test]
fn a_card_takes_what_is_written() {
    let (rate, moved, _) = copied("", "if=/dev/zero of=/dev/xdma0_h2c_0 bs=1M count=4");
    assert_eq!(moved, [4 << 20, 0]);
    assert!(0.5 < rate && rate < 7.9, "{rate:.2} GB/s");
    // The last block is shorter, and ends with a shorter transfer.
    let (_, moved, _) = copied("", "if=/dev/zero of=/dev/xdma0_h2c_0 bs=10000 count=25000 iflag=count_bytes");
    assert_eq!(moved, [25_000, 0]);
}

/// Each request is unmapped at its end, and strictly means that the IOMMU has to say so.
#[test]
fn an_iommu_costs_small_requests_most() {
    let of = |mode: &str, bs: &str| {
        copied(&format!("iommu = \"{mode}\""), &format!("if=/dev/xdma0_c2h_0 of=/dev/null {bs}")).0
    };
    let small = of("strict", "bs=4k count=256") / of("off", "bs=4k count=256");
    let large = of("strict", "bs=4M count=4") / of("off", "bs=4M count=4");
    assert!(small < 0.97 && large > small, "{small:.2} of small requests' rate, {large:.2} of large ones'");
}
