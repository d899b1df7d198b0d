//! Settings that events change, by the interfaces that a user of Linux has for them.

use std::rc::Rc;

use ::kernel::{Kernel, NetDevice};
use machine::{NetSetting, Setting};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::{TaskId, TaskParams};
use platform::net::{Coalescing, NetFeatures, PacketDevice, Rings};
use workloads::Failure;

use super::host::Computer;
use super::processes::{has_ended, policy};
use super::vms;

/// Starts to change a setting, and tells how that ends. `process` finds the kernel and the first task of a program
/// that runs.
pub fn set(
    hosts: &[Computer],
    setting: &Setting,
    process: impl FnOnce(usize) -> Option<(Rc<Kernel>, TaskId)>,
) -> Async<'static, Result<(), Failure>> {
    let now = |set: Result<(), Failure>| -> Async<'static, _> { Box::pin(async { set }) };
    match setting {
        Setting::Memory(program, memory) => {
            let Some((kernel, task)) = process(*program) else { return now(Err(has_ended())) };
            now(kernel.set_process_policy(task, policy(*memory)).map_err(|_| has_ended()))
        }
        Setting::Net(host, name, setting) => {
            let kernel = &hosts[*host].kernel;
            let Some(device) = kernel.net().device(name) else { return now(Err(Error::NoDevice.into())) };
            let setting = setting.clone();
            run(kernel, "ethtool", async move |cpu| set_device(cpu, &device, setting).await)
        }
        Setting::IoTimeout(host, name, time) => {
            let device = hosts[*host].kernel.block().device(name).ok_or(Error::NoDevice);
            now(device.map(|device| device.set_timeout(*time)).map_err(Failure::from))
        }
        Setting::SglThreshold(host, bytes) => {
            let driver = hosts[*host].software.nvme_driver.as_ref().ok_or(Error::NoDevice);
            now(driver.map(|driver| driver.set_sgl_threshold(*bytes)).map_err(Failure::from))
        }
        Setting::Packets(host, select) => {
            let (driver, select) = (hosts[*host].software.nic_driver.clone(), *select);
            run(&hosts[*host].kernel, "sysfs", async move |cpu| {
                driver.ok_or(Error::NoDevice)?.set_select(cpu, select);
                Ok(())
            })
        }
        Setting::Placement(host, placement) => {
            let manager = hosts[*host].manager().zip(vms::policy(*placement)).ok_or(Error::NoDevice);
            now(manager.map(|(manager, policy)| manager.set_policy(policy)).map_err(Failure::from))
        }
    }
}

/// Runs a tool on a host.
fn run(
    kernel: &Kernel,
    tool: &str,
    set: impl AsyncFnOnce(&Cpu) -> Result<(), Error> + 'static,
) -> Async<'static, Result<(), Failure>> {
    let ended = kernel.run(TaskParams::named(tool), async move |cpu: Cpu| {
        let set = set(&cpu).await;
        cpu.sync().await;
        set
    });
    Box::pin(async move { ended.wait().await.map_err(Failure::from) })
}

async fn set_device(cpu: &Cpu, device: &NetDevice, setting: NetSetting) -> Result<(), Error> {
    match setting {
        NetSetting::Coalescing(time) => coalesce(cpu, device, |now| Coalescing { time, ..now }),
        NetSetting::CoalescingPackets(packets) => coalesce(cpu, device, |now| Coalescing { packets, ..now }),
        NetSetting::Adaptive(adaptive) => coalesce(cpu, device, |now| Coalescing { adaptive, ..now }),
        NetSetting::TxRing(tx) => resize(cpu, device, |now| Rings { tx, ..now }).await,
        NetSetting::RxRing(rx) => resize(cpu, device, |now| Rings { rx, ..now }).await,
        NetSetting::Rss(queues) => PacketDevice::set_indirection(device, cpu, &queues),
        NetSetting::Tso(tso) => {
            let on = device.set_features(cpu, &NetFeatures { tso, ..device.features() });
            if on.tso == tso { Ok(()) } else { Err(Error::NotSupported) }
        }
        NetSetting::Mtu(mtu) => device.set_mtu(mtu),
    }
}

/// Changes the interrupt moderation of all queues.
fn coalesce(cpu: &Cpu, device: &NetDevice, change: impl Fn(Coalescing) -> Coalescing) -> Result<(), Error> {
    (0..device.limits().rx_queues).try_for_each(|queue| match PacketDevice::coalescing(device, queue) {
        Some(now) => PacketDevice::set_coalescing(device, cpu, queue, change(now)),
        None => Ok(()),
    })
}

async fn resize(cpu: &Cpu, device: &NetDevice, change: impl Fn(Rings) -> Rings) -> Result<(), Error> {
    let driver = device.driver().ok_or(Error::NoDevice)?;
    let now = driver.rings().ok_or(Error::NotSupported)?;
    driver.set_rings(cpu, change(now)).await
}
