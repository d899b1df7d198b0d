//! Configuration of devices on a host without a kernel.

use engine::Handle;
use units::HostPhysical;
use wire::pcie::Bdf;
use wire::pcie::config::header;

use crate::Fabric;
use crate::memory::CoreId;
use crate::root::HostId;

/// What configures a host's functions before its programs run, with one access after the other.
#[derive(Clone)]
pub struct HostFirmware {
    fabric: Handle<Fabric>,
    host: HostId,
    core: CoreId,
}

impl HostFirmware {
    /// The firmware of `host`, on one of its cores.
    pub const fn new(fabric: Handle<Fabric>, host: HostId, core: CoreId) -> Self {
        Self { fabric, host, core }
    }

    /// Writes a doubleword of configuration space, and waits until that is done.
    pub async fn write(&self, function: Bdf, register: u16, value: u32) {
        let written = self.fabric.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            host.config_write(&mut cx, self.core, function, register, value, 0xf)
        });
        // As after a probe, nothing follows from an error.
        let _ = written.data.await;
    }

    /// Gives a function's 64-bit BARs, known by the first of their two numbers, their addresses. The function then decodes
    /// them, and may be bus master.
    pub async fn enable(&self, function: Bdf, bars: &[(u16, HostPhysical)]) {
        for &(bar, address) in bars {
            let register = header::BAR0 + 4 * bar;
            self.write(function, register, address.get() as u32).await;
            self.write(function, register + 4, (address.get() >> 32) as u32).await;
        }
        let on = header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER;
        self.write(function, header::COMMAND, on.into()).await;
    }
}
