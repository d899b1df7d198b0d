//! The suite of the GPU's driver: interrupts tell of channels that have stopped, by message and by the legacy line.

use std::rc::Rc;

use devices::gpu::{Gpu, GpuParams};
use drivers::gpu::GpuDriver;
use engine::Simulation;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::link::LinkParams;
use hardware::memory::NodeId;
use hardware::root::RootPortParams;
use kernel::{DmaMode, Kernel};
use platform::cpu::CpuId;
use platform::gpu::GpuFile;
use platform::kernel::TaskParams;
use units::{Bytes, Duration};
use wire::gpu::{Entry, GpuCommand};
use wire::pcie::{Generation, Width};

use crate::ground::board::{self, Board};
use crate::ground::{self, Computer};

/// A computer with a GPU, booted.
struct Machine {
    // Dropped first: tasks hold what the kernels hold.
    simulation: Simulation<Fabric>,
    computer: Computer,
}

impl Machine {
    fn new(mode: DmaMode, message: bool) -> Self {
        let gpu = Gpu::new(GpuParams { message, ..GpuParams::example() }).unwrap();
        let board = Board {
            memory: Bytes::mib(64),
            stores: StoreParams::ideal(),
            kernel: board::kernel(mode),
            ports: vec![RootPortParams { node: NodeId(0), ..RootPortParams::ideal() }],
            link: LinkParams::example(Generation::Gen2, Width::X16),
            first_link: None,
        };
        let mut fabric = Fabric::new();
        let parts = ground::parts(&mut fabric, board, Box::new(gpu));
        let simulation = Simulation::new(fabric);
        let computer = Computer::new(&simulation, parts);
        computer.kernel.add_driver(Rc::new(GpuDriver));
        computer.boot(&simulation);
        Self { simulation, computer }
    }

    fn kernel(&self) -> &Rc<Kernel> {
        &self.computer.kernel
    }

    fn file(&self) -> Option<Rc<dyn GpuFile>> {
        let file = self.kernel().face().open_file("gpu0")?;
        file.downcast::<Rc<dyn GpuFile>>().ok().map(|file| (*file).clone())
    }

    /// Opens a context with so many channels, each of which gets a command that is none, and waits without asking; then closes it.
    fn stop_channels(&self, channels: u8) {
        let file = self.file().expect("there is a GPU");
        let done = self.kernel().run(TaskParams::named("test").on(CpuId(0)), async move |cpu| {
            let context = file.open(&cpu).unwrap();
            for _ in 0..channels {
                let channel = context.channel(&cpu, 1).unwrap();
                cpu.store(channel.commands, &[0; GpuCommand::BYTES]);
                let place = channel.commands_at;
                let entry = Entry { window: place.window, count: 1, offset: place.offset as u32 };
                cpu.store(channel.ring, &entry.emit());
                cpu.sync().await;
                channel.doorbell.write_u32(&cpu, 0, 1);
            }
            cpu.sleep(Duration::from_ms(1)).await;
            context.close(&cpu);
        });
        self.simulation.block_on(async move { done.wait().await }).expect("it ends");
    }

    /// How often the kernel was told that a channel has stopped.
    fn told(&self) -> usize {
        self.kernel().log().iter().filter(|(_, line)| line.contains("stopped: Malformed")).count()
    }

    /// Interrupts that a handler found something to do in.
    fn handled(&self) -> u64 {
        self.kernel().irq_counters().handled
    }
}

#[test]
fn a_channel_that_stops_is_told_of_by_message_and_by_the_line() {
    for (mode, message) in [DmaMode::Off, DmaMode::Strict].into_iter().flat_map(|m| [(m, true), (m, false)]) {
        let machine = Machine::new(mode, message);
        if !message && !Computer::HAS_LINES {
            // Windows pass writes, and a line is none.
            assert!(machine.file().is_none());
            continue;
        }
        for (times, channels) in [(1, 1), (2, 3), (3, 1)] {
            let (told, handled) = (machine.told(), machine.handled());
            machine.stop_channels(channels);
            assert_eq!(machine.told() - told, usize::from(channels), "{message} {times}");
            let handled = machine.handled() - handled;
            assert!((1..=u64::from(channels)).contains(&handled), "{message} {times}: {handled}");
        }
        // A line that stayed active would ask for ever.
        ground::settle(&machine.simulation);
    }
}
