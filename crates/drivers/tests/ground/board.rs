//! What a computer of the suites is made of, whatever its drivers stand on.
#![allow(dead_code, reason = "grounds use what they need")]

use engine::Seed;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::LinkParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, RootPortParams};
use kernel::{CoreParams, DmaMode, DmaParams, KernelParams};
use platform::device::Device;
use units::{Bytes, Frequency};

/// What a computer is made of, and how its device is connected.
#[derive(Clone)]
pub struct Board {
    /// Memory that the kernel of the suite has at each of the two nodes.
    pub memory: Bytes,
    pub stores: StoreParams,
    /// Of the kernel of the suite.
    pub kernel: KernelParams,
    /// The root port above each link of the device.
    pub ports: Vec<RootPortParams>,
    pub link: LinkParams,
    /// The first link, if it differs.
    pub first_link: Option<LinkParams>,
}

/// A kernel as Linux, which uses the IOMMU so.
pub fn kernel(mode: DmaMode) -> KernelParams {
    KernelParams::linux(CoreParams::haswell(Frequency::mhz(2_500)), mode)
}

/// A computer without its software.
pub struct Parts {
    pub board: Board,
    pub host: HostId,
    pub device: EndpointId,
}

impl Board {
    /// A host as [`add_host`](Self::add_host) makes it, with the device.
    pub fn add(
        self,
        fabric: &mut Fabric,
        memory: Bytes,
        iommu: Option<IommuParams>,
        device: Box<dyn Device>,
    ) -> Parts {
        let host = self.add_host(fabric, memory, iommu);
        let device = self.add_device(fabric, host, device);
        Parts { board: self, host, device }
    }

    /// A kernel that is like the suite's, but for how it uses its IOMMU.
    pub fn kernel_with(&self, mode: DmaMode) -> KernelParams {
        KernelParams { dma: DmaParams::linux(mode), ..self.kernel.clone() }
    }

    /// A host with so much memory at each node, and with an IOMMU for each if one is to be used.
    pub fn add_host(&self, fabric: &mut Fabric, memory: Bytes, iommu: Option<IommuParams>) -> HostId {
        let mut params = MemoryParams::example();
        for socket in &mut params.sockets {
            socket.memory[0].size = memory;
        }
        let nodes = if iommu.is_some() { 0..2 } else { 0..0 };
        let new = |n| Iommu::new(iommu.unwrap_or_default(), NodeId(n), Seed::new(7)).unwrap();
        let host = fabric.add_host(MemorySystem::new(&params), nodes.map(new).collect());
        fabric.host_mut(host).set_store_params(&self.stores);
        host
    }

    /// The device in its slots of a host.
    pub fn add_device(&self, fabric: &mut Fabric, host: HostId, device: Box<dyn Device>) -> EndpointId {
        let first = self.first_link.iter().chain([&self.link]).take(1);
        let links = first.chain(std::iter::repeat(&self.link));
        let add = |(port, link): (&RootPortParams, &LinkParams)| {
            fabric.add_root_port(host, port.clone(), link.clone(), 0..=0)
        };
        let links: Vec<_> = self.ports.iter().zip(links).map(add).collect();
        fabric.add_endpoint(EndpointParams::ideal(256), &links, device)
    }
}
