//! Programs that use a disk, on whatever the suite runs on.

use std::rc::Rc;

use engine::Simulation;
use hardware::Fabric;
use kernel::Kernel;
use platform::Error;
use platform::block::{BlockOp, Segment};
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::{PhysAddr, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use platform::sync::Completion;

pub struct Programs {
    // Dropped first: tasks hold what the kernels hold.
    pub simulation: Simulation<Fabric>,
    /// Theirs.
    pub kernel: Rc<Kernel>,
    /// Such as `/dev/nvme0n1`.
    pub disk: &'static str,
}

impl Programs {
    pub fn file(&self) -> Rc<dyn BlockFile> {
        self.kernel.face().open_block(self.disk).unwrap_or_else(|| panic!("{:?}", self.kernel.log()))
    }

    /// Runs a program on a core to its end.
    pub fn run<T: 'static>(&self, on: u16, program: impl FnOnce(Cpu) -> Async<'static, T> + 'static) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move {
                let value = program(cpu.clone()).await;
                cpu.sync().await;
                end.complete(value);
            })
        });
        let ended = self.simulation.block_on(async move { result.wait().await });
        ended.unwrap_or_else(|deadlock| panic!("{deadlock}: {:#?}", self.kernel.log()))
    }

    /// Takes pages of a node; a program's memory.
    pub fn memory(&self, pages: u64, node: u8) -> PhysAddr {
        let kernel = self.kernel.face();
        self.run(0, move |cpu| {
            Box::pin(async move {
                let order = pages.next_power_of_two().trailing_zeros() as u8;
                kernel.alloc_pages(&cpu, order, Policy::Bind(Node(node))).unwrap().start
            })
        })
    }

    pub fn put(&self, at: PhysAddr, bytes: &[u8]) {
        assert!(self.kernel.ground().poke(at, bytes));
    }

    pub fn get(&self, at: PhysAddr, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.kernel.ground().peek(at, &mut bytes));
        bytes
    }

    /// One direct request, to its end.
    pub fn direct(
        &self,
        on: u16,
        op: BlockOp,
        offset: u64,
        memory: Vec<Segment>,
        length: u64,
    ) -> Result<(), Error> {
        let file = self.file();
        self.run(on, move |cpu| {
            Box::pin(async move {
                let completions = IoCompletions::new();
                file.submit(&cpu, vec![IoRequest { op, offset, length, memory, token: 7 }], &completions);
                let done = completions.next().await;
                assert_eq!(done.token, 7);
                done.result
            })
        })
    }
}
