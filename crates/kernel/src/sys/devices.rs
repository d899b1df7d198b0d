//! Network and block devices, below the function of their driver.

use platform::cpu::CpuId;
use wire::pcie::FunctionAddress;

use super::{SysNode, cpu_list};
use crate::kernel::Inner;

pub(super) fn net(kernel: &Inner, at: FunctionAddress) -> Vec<SysNode> {
    let devices = kernel.net.devices();
    let own = devices.iter().filter(|d| d.driver().and_then(|driver| driver.function()) == Some(at));
    own.map(|device| {
        let (limits, counters) = (device.limits(), device.counters());
        let state = if device.is_up() && device.has_carrier() { "up" } else { "down" };
        let cpus = || (0..kernel.cores.all.len() as u16).map(CpuId);
        let tx = (0..limits.tx_queues).map(|n| {
            let home = cpus().filter(|&cpu| device.tx_queue_for(cpu) == n);
            SysNode::new(format!("tx-{n}")).with("xps_cpus", cpu_list(home))
        });
        let rx = (0..limits.rx_queues).map(|n| {
            let node = SysNode::new(format!("rx-{n}"));
            match device.driver().and_then(|driver| driver.coalescing(n)) {
                None => node,
                Some(c) => node
                    .with("coalesce_usecs", c.time.as_ns_f64() / 1e3)
                    .with("coalesce_frames", c.packets)
                    .with("coalesce_adaptive", c.adaptive),
            }
        });
        let table = device.driver().map(|driver| driver.indirection()).unwrap_or_default();
        let table: Vec<String> = table.iter().map(ToString::to_string).collect();
        let statistics = SysNode::new("statistics")
            .with("rx_packets", counters.rx_packets)
            .with("rx_bytes", counters.rx_bytes)
            .with("tx_packets", counters.tx_packets)
            .with("tx_bytes", counters.tx_bytes)
            .with("tx_dropped", counters.tx_dropped + counters.tx_no_link);
        let mut node = SysNode::new(device.name())
            .with("address", device.mac())
            .with("mtu", device.mtu())
            .with("operstate", state)
            .with("carrier", u8::from(device.has_carrier()))
            .with("speed", limits.speed.bits_per_s() / 1_000_000)
            .with("rss_indirection", table.join(" "))
            .with_folder("queues", tx.chain(rx).collect());
        node.children.push(statistics);
        node
    })
    .collect()
}

pub(super) fn block(kernel: &Inner, at: FunctionAddress) -> Vec<SysNode> {
    let devices = kernel.block.devices();
    let own = devices.iter().filter(|device| device.function() == Some(at));
    own.map(|device| {
        let limits = device.limits();
        let queue = SysNode::new("queue")
            .with("logical_block_size", limits.block_bytes)
            .with("nr_hw_queues", device.tags().queues())
            .with("nr_requests", device.tags().depth())
            .with("max_hw_sectors_kb", limits.max_bytes >> 10)
            .with("max_segments", limits.max_segments)
            .with("write_cache", if limits.write_cache { "write back" } else { "write through" });
        let mut node = SysNode::new(device.name()).with("size", limits.sectors);
        node.children.push(queue);
        node
    })
    .collect()
}
