//! Cards with a DMA engine: a character device for each way, as Xilinx's xdma driver has them, and the registers for
//! programs that map these.
//!
//! A read(2) of the device from the card, or a write(2) of the one to it, maps the caller's memory, tells the engine where it
//! is, starts it and looks at its status until it is done: the engine has no interrupt (as with xdma's `poll_mode=1`).

use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::card::CardEngine;
use platform::cpu::{Async, Cpu, Part};
use platform::dma::{Direction, DmaOps};
use platform::kernel::Kernel;
use platform::memory::PAGE;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Semaphore;
use units::{Duration, Iova};
use wire::dma_engine::{self as regs, Test};

/// Cycles of a request, its system call included, and of each of its pages, which is pinned and described (assumed: about
/// 1 µs, and a tenth of a microsecond for four pages, as get_user_pages_fast(9) takes several at once).
const REQUEST: u64 = 3_000;
const EACH_PAGE: u64 = 75;
/// Bytes of one transfer of the engine.
const TRANSFER: u64 = 4096;
/// How long a request may take (xdma: `h2c_timeout` and `c2h_timeout`, 10 s).
const PATIENCE: Duration = Duration::from_ms(10_000);

/// A driver for cards that match one of the IDs.
pub struct CardDriver(Vec<PciMatch>);

impl CardDriver {
    /// A driver for these cards.
    pub fn new(ids: Vec<PciMatch>) -> Self {
        Self(ids)
    }
}

struct CardBinding {
    kernel: Rc<dyn Kernel>,
    /// Names of its files.
    names: [String; 2],
}

/// An engine, and who uses it.
struct MappedEngine {
    registers: Mmio,
    dma: Rc<dyn DmaOps>,
    turn: Semaphore,
}

impl PciDriver for CardDriver {
    fn name(&self) -> &'static str {
        "xdma"
    }

    fn ids(&self) -> &[PciMatch] {
        &self.0
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            device.set_master(cpu, true).await;
            let (kernel, dma) = (device.kernel(), device.dma());
            dma.set_mask(64)?;
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            let engine: Rc<dyn CardEngine> =
                Rc::new(MappedEngine { registers, dma, turn: Semaphore::new(1) });
            let names = [
                kernel.register_file("xdma", Rc::new(engine)),
                kernel.register_file("vfio", Rc::new(device)),
            ];
            Ok(Rc::new(CardBinding { kernel, names }) as Rc<dyn PciBinding>)
        })
    }
}

impl PciBinding for CardBinding {
    fn remove<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move { self.names.iter().for_each(|name| self.kernel.unregister_file(name)) })
    }
}

impl MappedEngine {
    /// Moves `length` bytes of mapped memory in transfers of one size, and waits for the end.
    async fn run(&self, cpu: &Cpu, test: Test, at: Iova, (length, each): (u64, u64)) -> Result<(), Error> {
        let registers = &self.registers;
        for chunk in 0..length.div_ceil(regs::CHUNK_BYTES) {
            let address = at.get() + chunk * regs::CHUNK_BYTES;
            registers.write_u64(cpu, regs::CHUNK_ADDRESSES + 8 * chunk, address);
        }
        for (register, value) in [
            (regs::TEST, test as u64),
            (regs::INTERFACE, 0),
            (regs::RANDOM, 0),
            (regs::TRANSFER, each),
            (regs::WINDOW, length),
            (regs::HOST_OFFSET, 0),
            (regs::DEVICE_OFFSET, 0),
            (regs::TRANSACTIONS, length / each),
            (regs::CONTROL, u64::from(regs::START)),
        ] {
            registers.write_u32(cpu, register, value as u32);
        }
        let deadline = cpu.now() + PATIENCE;
        loop {
            let _part = cpu.book(Part::Poll);
            match registers.read_u32(cpu, regs::STATUS).await {
                u32::MAX => return Err(Error::NoDevice),
                regs::DONE => return Ok(()),
                _ if cpu.now() >= deadline => return Err(Error::TimedOut),
                _ => {}
            }
        }
    }

    /// Moves a contiguous piece, which may end with a shorter transfer.
    async fn piece(&self, cpu: &Cpu, way: Direction, piece: &Segment) -> Result<(), Error> {
        let test = match way {
            Direction::ToDevice => Test::BandwidthRead,
            Direction::FromDevice => Test::BandwidthWrite,
            Direction::Bidirectional => return Err(Error::Invalid),
        };
        let length = u64::from(piece.length);
        let whole = length - length % TRANSFER;
        cpu.work(EACH_PAGE * length.div_ceil(PAGE));
        let at = self.dma.map(cpu, piece.at, length, way)?;
        let mut done = Ok(());
        for (from, length, each) in [(0, whole, TRANSFER), (whole, length - whole, length - whole)] {
            if length > 0 && done.is_ok() {
                done = self.run(cpu, test, at + from, (length, each)).await;
            }
        }
        self.dma.unmap(cpu, at, length, way);
        done
    }
}

impl CardEngine for MappedEngine {
    fn transfer<'a>(
        &'a self,
        cpu: &'a Cpu,
        way: Direction,
        memory: &'a [Segment],
    ) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            cpu.work(REQUEST);
            self.turn.acquire().await;
            let mut done = Ok(());
            for piece in memory {
                // The engine knows so much memory at once.
                let most = (regs::CHUNKS as u64 * regs::CHUNK_BYTES) as u32;
                for from in (0..piece.length).step_by(most as usize) {
                    let length = most.min(piece.length - from);
                    let part = Segment { at: piece.at + u64::from(from), length };
                    if done.is_ok() {
                        done = self.piece(cpu, way, &part).await;
                    }
                }
            }
            self.turn.release();
            done
        })
    }
}
