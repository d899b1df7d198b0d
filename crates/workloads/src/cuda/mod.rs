//! A small runtime for GPUs, in the manner of CUDA's: contexts, streams, events, peer access, pinned host memory.
//!
//! A context has a channel to each engine of its GPU. A stream goes from channel to channel, also of several GPUs: where it changes,
//! the next channel waits for a semaphore in host memory that the one before releases. An event is a semaphore with the GPU's
//! time.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | contexts and their channels |
//! | `stream` | streams and events |
//! | `bandwidth`, `copy`, `pingpong`, `train` | programs |

pub mod bandwidth;
pub mod copy;
pub mod pingpong;
mod stream;
pub mod train;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::cpu::{Cpu, Part};
use platform::gpu::{GpuChannel, GpuContext, GpuFile, GpuInfo, GpuMemory};
use platform::kernel::Kernel;
use platform::memory::{Pages, PhysAddr, Policy};
use units::Duration;
use wire::gpu::{Entry, GpuCommand, Place};

use crate::program::Failure;
pub use stream::{CudaStream, Event, Events, Stage};

/// How long a program waits for a GPU (assumed: nothing here computes as long).
const PATIENCE: Duration = Duration::from_ms(60_000);
/// For how long it spins at first, and then between two looks (assumed: a runtime that yields its core after a while).
const SPINS: Duration = Duration::from_ms(1);
const YIELDS: Duration = Duration::from_us(50);

/// A failure of one of CUDA's calls.
fn failed(call: &str) -> impl Fn(platform::Error) -> Failure + '_ {
    move |error| Failure::about(call, error)
}

/// The GPU with a number, as `cudaSetDevice` has it.
pub fn gpu(kernel: &dyn Kernel, number: u32) -> Result<Rc<dyn GpuFile>, Failure> {
    let file = kernel.open_file(&format!("gpu{number}"));
    let gpu = file.and_then(|file| file.downcast::<Rc<dyn GpuFile>>().ok());
    gpu.map(|gpu| Rc::clone(&*gpu)).ok_or_else(|| Failure(format!("cudaSetDevice: there is no GPU {number}")))
}

/// Pinned host memory (`cudaHostAlloc`).
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    pages: Pages,
    /// Bytes.
    pub bytes: u64,
}

impl HostMemory {
    /// Takes it.
    ///
    /// # Errors
    /// If there is not so much in one piece.
    pub fn take(kernel: &dyn Kernel, cpu: &Cpu, bytes: u64) -> Result<Self, Failure> {
        let pages = kernel.alloc_pages(cpu, Pages::order_for(bytes), Policy::Task);
        Ok(Self { pages: pages.map_err(failed("cudaHostAlloc"))?, bytes })
    }

    /// Where it begins.
    pub fn start(&self) -> PhysAddr {
        self.pages.start
    }

    /// Gives it back.
    pub fn give(self, kernel: &dyn Kernel, cpu: &Cpu) {
        kernel.free_pages(cpu, self.pages);
    }
}

/// A channel with what is known of its work.
struct Channel {
    is: GpuChannel,
    /// Entries that have been put.
    put: Cell<u64>,
}

/// A GPU's context.
pub struct Context {
    gpu: Rc<dyn GpuContext>,
    channels: Vec<Channel>,
    /// Other contexts' semaphores that this one's channels reach: the page that they are in, and where that is.
    others: RefCell<Vec<(PhysAddr, Place)>>,
}

impl Context {
    /// Opens a context on a GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open(cpu: &Cpu, gpu: &dyn GpuFile) -> Result<Rc<Self>, Failure> {
        let context = gpu.open(cpu).map_err(failed("cudaSetDevice"))?;
        let channel = |engine| {
            let channel = context.channel(cpu, engine).map_err(failed("cudaSetDevice"))?;
            Ok(Channel { is: channel, put: Cell::new(0) })
        };
        let channels = (0..=gpu.info().copy_engines).map(channel).collect::<Result<_, Failure>>();
        match channels {
            Ok(channels) => Ok(Rc::new(Self { gpu: context, channels, others: RefCell::default() })),
            Err(failure) => {
                context.close(cpu);
                Err(failure)
            }
        }
    }

    /// What the GPU has.
    pub fn info(&self) -> GpuInfo {
        self.gpu.info()
    }

    /// Takes memory (`cudaMalloc`).
    ///
    /// # Errors
    /// If there is not so much.
    pub fn malloc(&self, cpu: &Cpu, bytes: u64) -> Result<GpuMemory, Failure> {
        self.gpu.take(cpu, bytes).map_err(failed("cudaMalloc"))
    }

    /// Lets the GPU reach pinned host memory (`cudaHostAllocMapped`).
    ///
    /// # Errors
    /// What the DMA API says.
    pub fn map(&self, cpu: &Cpu, memory: &HostMemory) -> Result<Place, Failure> {
        self.gpu.map_host(cpu, memory.start(), memory.bytes).map_err(failed("cudaHostRegister"))
    }

    /// Lets the GPU reach another one's memory (`cudaDeviceEnablePeerAccess`).
    ///
    /// # Errors
    /// If there is no way to it, or it lies behind the aperture's end.
    pub fn map_peer(&self, cpu: &Cpu, memory: &GpuMemory) -> Result<Place, Failure> {
        let call = "cudaDeviceEnablePeerAccess";
        let shown =
            memory.shown.ok_or_else(|| Failure(format!("{call}: peers do not reach memory so far up")))?;
        self.gpu.map_peer(cpu, shown, memory.bytes).map_err(failed(call))
    }

    /// Ends a mapping.
    pub fn unmap(&self, cpu: &Cpu, place: Place) {
        self.gpu.unmap(cpu, place);
    }

    /// Gives everything back. Nothing may be under way.
    pub fn close(&self, cpu: &Cpu) {
        self.gpu.close(cpu);
    }

    /// The channel that copies into this GPU's memory.
    pub fn copies_in(&self) -> usize {
        1.min(self.channels.len() - 1)
    }

    /// The channel that copies out of it; another one where there are two.
    pub fn copies_out(&self) -> usize {
        self.channels.len() - 1
    }

    /// Where a semaphore of host memory is for this context.
    fn reach(&self, cpu: &Cpu, of: &GpuChannel) -> Result<Place, Failure> {
        if let Some((_, place)) = self.others.borrow().iter().find(|(at, _)| *at == of.semaphore) {
            return Ok(*place);
        }
        let bytes = wire::gpu::SEMAPHORE_BYTES;
        let place = self.gpu.map_host(cpu, of.semaphore, bytes).map_err(failed("cudaStreamWaitEvent"))?;
        self.others.borrow_mut().push((of.semaphore, place));
        Ok(place)
    }

    /// What a channel's semaphore has come to.
    fn reached(&self, cpu: &Cpu, channel: usize) -> u64 {
        cpu.load_u64(self.channels[channel].is.semaphore)
    }

    /// Gives a channel work. Its semaphore comes to the number that is returned when all of it is done.
    ///
    /// # Errors
    /// If the channel has stopped, or its ring does not become free.
    async fn submit(&self, cpu: &Cpu, number: usize, commands: &[GpuCommand]) -> Result<u64, Failure> {
        let channel = &self.channels[number];
        let is = &channel.is;
        let entry = channel.put.get();
        if let Some(earlier) = (entry + 1).checked_sub(is.entries.into()) {
            self.wait(cpu, number, earlier).await?;
        }
        debug_assert!(
            commands.len() < is.entry_commands as usize,
            "an entry has no room for so many commands"
        );
        let slot = entry % u64::from(is.entries);
        let offset = slot * u64::from(is.entry_commands) * GpuCommand::BYTES as u64;
        let done = GpuCommand::Release { at: is.semaphore_at, value: entry + 1 };
        let all = commands.iter().copied().chain([done]);
        for (n, command) in (0..).zip(all) {
            cpu.store(is.commands + offset + n * GpuCommand::BYTES as u64, &command.emit());
        }
        let at = is.commands_at.after(offset);
        let put = Entry { window: at.window, count: commands.len() as u16 + 1, offset: at.offset as u32 };
        cpu.store(is.ring + slot * Entry::BYTES as u64, &put.emit());
        channel.put.set(entry + 1);
        // The GPU looks at the ring when it is told to.
        cpu.sfence();
        is.doorbell.write_u32(cpu, 0, (entry + 1) as u32);
        cpu.sync().await;
        Ok(entry + 1)
    }

    /// Spins until a channel's semaphore has come so far, as `cudaDeviceSynchronize` does.
    ///
    /// # Errors
    /// If the channel has stopped, the GPU has gone, or nothing happens for long.
    async fn wait(&self, cpu: &Cpu, number: usize, value: u64) -> Result<(), Failure> {
        let failure = |why: String| Failure(format!("cudaDeviceSynchronize: {why}"));
        let began = cpu.now();
        let _part = cpu.book(Part::Poll);
        loop {
            cpu.cycles(stream::SPIN).await;
            if self.reached(cpu, number) >= value {
                return Ok(());
            }
            if let Some(fault) = self.gpu.fault(cpu, self.channels[number].is.number) {
                return Err(failure(format!("the GPU stopped: {fault:?}")));
            }
            if !self.gpu.is_present() {
                return Err(failure("the GPU has gone".into()));
            }
            let waited = cpu.now().since(began);
            if waited >= PATIENCE {
                return Err(failure("the GPU does not answer".into()));
            }
            if waited >= SPINS {
                cpu.sleep(YIELDS).await;
            }
        }
    }
}
