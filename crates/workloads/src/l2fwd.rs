//! l2fwd: sends every frame back to its sender, like DPDK's example application between two ports. It polls its
//! device, bypassing the kernel.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu, Part};
use platform::kernel::Kernel;
use platform::net::{Packet, PollDevice, PollFile, PollSetup, Rings};
use units::{Duration, Time};

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Maximum packets per burst (DPDK's example: `MAX_PKT_BURST`).
const BURST: usize = 32;
/// Cycles of the loop per burst, and per packet to swap its addresses (assumed: about ten instructions per packet).
const LOOP: u64 = 60;
const EACH: u64 = 20;
/// Longest run in milliseconds: a day.
const LONGEST_MS: u64 = 86_400_000;
/// Length of a MAC address.
const ADDRESS: usize = 6;

/// Sends frames back to their senders by polling, bypassing the kernel, like DPDK's l2fwd.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "l2fwd", disable_help_flag = true)]
pub struct L2fwd {
    /// The device, under its name for polling programs.
    #[arg(short = 'i', default_value = "uio0")]
    device: String,
    /// Milliseconds to run; by default, until all other programs have ended.
    #[arg(short = 't', value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    time_ms: Option<u64>,
    /// The original's options, which name several ports.
    #[arg(last = true, hide = true)]
    ports: Vec<String>,
}

/// What forwards between ports, as the original's options ask.
const BETWEEN_PORTS: &str = "`dpdk-testpmd -l CORES -- --forward-mode=mac` forwards between ports, each pair of which `--portlist` names";

/// Options of the original without a counterpart of their own.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-n CHANNELS", "the memory channels are the machine's"),
    Unmodelled::refused("-l CORES", BETWEEN_PORTS),
    Unmodelled::refused("-c MASK", BETWEEN_PORTS),
];

/// Descriptors of each ring (DPDK's example: `RX_DESC_DEFAULT`, `TX_DESC_DEFAULT`).
const RINGS: Rings = Rings { tx: 1024, rx: 1024 };

/// The device of this name, which a program polls.
pub(crate) fn polled(kernel: &Rc<dyn Kernel>, name: &str) -> Result<Rc<dyn PollDevice>, Failure> {
    let file = kernel.open_file(name).and_then(|file| file.downcast::<PollFile>().ok());
    let file = file.ok_or_else(|| Failure(format!("{name}: there is no such device to poll")))?;
    Ok(Rc::clone(&file.0))
}

impl L2fwd {
    async fn run(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let device = polled(&environment.kernel, &self.device)?;
        let setup = PollSetup { queues: 1, rings: RINGS };
        device.start(cpu, setup).await.map_err(|error| Failure::about(&self.device, error))?;
        let _part = cpu.book(Part::User);
        let end = self.time_ms.map_or(Time::NEVER, |ms| cpu.now() + Duration::from_ms(ms));
        let (mut packets, frames) = (Vec::with_capacity(BURST), Rc::new(Cell::new(0u64)));
        let counted = Rc::clone(&frames);
        let report = move |_: Time| {
            let mut report = Report::default();
            report.add("frames", "packets", counted.get() as f64);
            report
        };
        environment.so_far.by(report.clone());
        while cpu.now() < end {
            cpu.work(LOOP);
            device.receive(cpu, 0, &mut packets, BURST);
            let taken = packets.len();
            packets.iter().for_each(|packet| turn_round(cpu, packet));
            frames.set(frames.get() + taken as u64);
            if taken == 0 {
                cpu.rebook(Part::User, Part::Poll);
            }
            cpu.sync().await;
            if taken > 0 {
                device.send(cpu, 0, &mut packets);
                // As in the original, packets that do not fit are dropped.
                packets.drain(..).for_each(|packet| packet.release(cpu));
            }
            cpu.sync().await;
        }
        Ok(report(cpu.now()))
    }
}

/// Swaps sender and receiver.
pub(crate) fn turn_round(cpu: &Cpu, packet: &Packet) {
    cpu.work(EACH);
    let mut addresses = [0; 2 * ADDRESS];
    packet.load(cpu, &mut addresses);
    addresses.rotate_left(ADDRESS);
    if let Some(first) = packet.fragments.first().filter(|first| first.length as usize >= addresses.len()) {
        cpu.store(first.at, &addresses);
    }
}

impl Program for L2fwd {
    fn serves(&self) -> bool {
        self.time_ms.is_none()
    }

    fn lasts(&self) -> Option<Duration> {
        self.time_ms.map(Duration::from_ms)
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        Refused::unless(
            self.ports.is_empty(),
            format!("l2fwd: `{}` is not carried out here", self.ports.join(" ")),
            BETWEEN_PORTS,
        )?;
        premises.polled("l2fwd", &self.device)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { Self::run(&self, &cpu, &environment).await })
    }
}
