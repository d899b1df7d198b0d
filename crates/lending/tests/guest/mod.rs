//! A guest with slots for functions of other hosts.
#![allow(dead_code, reason = "suites use what they need")]

use std::ops::Range;
use std::rc::Rc;

use kernel::DmaMode;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::PhysAddr;
use platform::pci::PciDriver;
use platform::sync::{Completion, until};
use units::{Bytes, Duration, Iova};
use virt::{GuestNode, InterruptSupport, VirtCosts, Vm, VmParams};

use crate::common::Cluster;
use crate::common::copiers::{self, CopierBinding, CopierDriver};

/// Memory of a guest.
pub const MEMORY: Bytes = Bytes::mib(16);

pub struct Guest {
    pub vm: Rc<Vm>,
    pub driver: Rc<CopierDriver>,
    host: usize,
}

/// A guest that has not booted.
pub fn guest_with(cluster: &Cluster, host: usize, pin_limit: Option<Bytes>) -> Guest {
    let params = VmParams {
        name: format!("guest{host}"),
        vcpus: vec![vec![CpuId(0)], vec![CpuId(1)]],
        nodes: vec![GuestNode { memory: MEMORY, host: Node(0) }],
        slots: 2,
        pin_limit,
        interrupts: InterruptSupport::Software,
        costs: VirtCosts::linux(),
        kernel: copiers::params(DmaMode::Off),
    };
    let kernel = &cluster.hosts[host].kernel;
    let vm = Vm::start(&cluster.simulation.handle(), kernel, params, Vec::new());
    let vm = cluster.simulation.block_on(vm).expect("it ends").expect("it is put together");
    let driver = Rc::new(CopierDriver::default());
    vm.kernel().add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    Guest { vm, driver, host }
}

pub fn guest(cluster: &Cluster, host: usize) -> Guest {
    guest_with(cluster, host, None)
}

impl Guest {
    /// Puts the `n`th function of a host into one of its slots.
    pub fn lend(&self, cluster: &Cluster, of: usize, n: usize) -> Result<u8, Error> {
        let memory = Rc::clone(self.vm.memory());
        let service = cluster.service(self.host);
        let offered = service.mediate(cluster.node(of), cluster.function(of, n), memory, 400);
        let offered = cluster.simulation.block_on(offered).expect("it ends")?;
        let added = self.vm.add(offered);
        cluster.simulation.block_on(added).expect("it ends")
    }

    pub fn boot(&self, cluster: &Cluster) {
        cluster.simulation.block_on(self.vm.kernel().boot()).expect("the guest boots");
    }

    pub fn copier(&self) -> Rc<CopierBinding> {
        Rc::clone(self.driver.bound.borrow().last().expect("its driver has one"))
    }

    pub fn run<T: 'static>(
        &self,
        cluster: &Cluster,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.vm.kernel().spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
            Box::pin(async move { end.complete(program(cpu).await) })
        });
        let ended = cluster.simulation.block_on(async move { result.wait().await });
        ended.unwrap_or_else(|deadlock| panic!("{deadlock}: {:#?}", self.vm.kernel().log()))
    }

    /// Copies within the guest's memory; whether what is there is what was to be copied.
    pub fn copies(&self, cluster: &Cluster, value: u64) -> bool {
        let copier = self.copier();
        self.run(cluster, move |cpu| {
            Box::pin(async move {
                cpu.store_u64(copier.memory.cpu, value);
                let to = Iova::new(copier.memory.bus.get() + 4096);
                let copy = copier.copy(&cpu, copier.memory.bus, to, 512, 1);
                // One that is not master of its bus says nothing.
                let copied = until(&cpu, cpu.now() + Duration::from_ms(50), copy).await;
                matches!(copied, Some(Ok(_))) && cpu.load_u64(copier.memory.cpu + 4096) == value
            })
        })
    }

    /// Where its functions find its memory.
    pub fn bus_ranges(&self) -> Vec<Range<u64>> {
        let all = self.vm.memory().ranges().concat();
        all.into_iter().map(|(from, length)| from.0..from.0 + length).collect()
    }

    /// Where its memory is on its host.
    pub fn host_ranges(&self) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        for mut range in self.bus_ranges() {
            while range.start < range.end {
                let (at, length) = self.vm.memory().place(PhysAddr(range.start)).expect("it is memory");
                all.push(at.0..at.0 + length);
                range.start += length;
            }
        }
        all
    }

    pub fn kill(&self, cluster: &Cluster) {
        cluster.simulation.block_on(self.vm.kill()).expect("it ends");
    }
}
