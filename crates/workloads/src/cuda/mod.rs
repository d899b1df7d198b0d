//! A small GPU runtime modelled on CUDA's: contexts, streams, events, peer access, pinned host memory.
//!
//! A context has a channel to each engine of its GPU. A stream can use several channels, also of different GPUs: on a
//! switch, the next channel waits for a semaphore in host memory that the previous one releases. An event is a
//! semaphore with the GPU's timestamp.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | contexts and their channels |
//! | `stream` | streams and events |
//! | `flows` | copies at once |
//! | `all_reduce`, `bandwidth`, `copy`, `nvbandwidth`, `peers`, `pingpong`, `train` | programs |

pub mod all_reduce;
pub mod bandwidth;
pub mod copy;
mod flows;
pub mod nvbandwidth;
pub mod peers;
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

/// Timeout for a GPU (assumed: no kernel here runs as long).
const PATIENCE: Duration = Duration::from_ms(60_000);
/// How long to spin at first, and the polling interval after that (assumed: a runtime that yields its core after a
/// while).
const SPINS: Duration = Duration::from_ms(1);
const YIELDS: Duration = Duration::from_us(50);

/// Wraps an error of a CUDA call.
fn failed(call: &str) -> impl Fn(platform::Error) -> Failure + '_ {
    move |error| Failure::about(call, error)
}

/// Finds a GPU by number, like `cudaSetDevice`.
pub fn gpu(kernel: &dyn Kernel, number: u32) -> Result<Rc<dyn GpuFile>, Failure> {
    let file = kernel.open_file(&format!("gpu{number}"));
    let gpu = file.and_then(|file| file.downcast::<Rc<dyn GpuFile>>().ok());
    gpu.map(|gpu| Rc::clone(&*gpu)).ok_or_else(|| Failure(format!("cudaSetDevice: there is no GPU {number}")))
}

/// Pinned host memory (`cudaHostAlloc`).
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    pages: Pages,
    /// Size in bytes.
    pub bytes: u64,
}

impl HostMemory {
    /// Allocates it.
    ///
    /// # Errors
    /// If no contiguous memory of this size is left.
    pub fn take(kernel: &dyn Kernel, cpu: &Cpu, bytes: u64) -> Result<Self, Failure> {
        let pages = kernel.alloc_pages(cpu, Pages::order_for(bytes), Policy::Task);
        Ok(Self { pages: pages.map_err(failed("cudaHostAlloc"))?, bytes })
    }

    /// Its physical address.
    pub fn start(&self) -> PhysAddr {
        self.pages.start
    }

    /// Frees it.
    pub fn give(self, kernel: &dyn Kernel, cpu: &Cpu) {
        kernel.free_pages(cpu, self.pages);
    }
}

/// A channel and the state of its work.
struct Channel {
    is: GpuChannel,
    /// Number of entries submitted.
    put: Cell<u64>,
}

/// A GPU's context.
pub struct Context {
    gpu: Rc<dyn GpuContext>,
    channels: Vec<Channel>,
    /// Mappings of other contexts' semaphores for this one's channels: physical page, and address in this context.
    others: RefCell<Vec<(PhysAddr, Place)>>,
}

impl Context {
    /// Opens a context on a GPU.
    ///
    /// # Errors
    /// Errors of the driver.
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

    /// Properties of the GPU.
    pub fn info(&self) -> GpuInfo {
        self.gpu.info()
    }

    /// Allocates memory (`cudaMalloc`).
    ///
    /// # Errors
    /// If not enough is left.
    pub fn malloc(&self, cpu: &Cpu, bytes: u64) -> Result<GpuMemory, Failure> {
        self.gpu.take(cpu, bytes).map_err(failed("cudaMalloc"))
    }

    /// Maps pinned host memory for the GPU (`cudaHostAllocMapped`).
    ///
    /// # Errors
    /// Errors of the DMA API.
    pub fn map(&self, cpu: &Cpu, memory: &HostMemory) -> Result<Place, Failure> {
        self.gpu.map_host(cpu, memory.start(), memory.bytes).map_err(failed("cudaHostRegister"))
    }

    /// Maps another GPU's memory for this one (`cudaDeviceEnablePeerAccess`).
    ///
    /// # Errors
    /// If there is no path to it, or it is beyond the end of the aperture.
    pub fn map_peer(&self, cpu: &Cpu, memory: &GpuMemory) -> Result<Place, Failure> {
        let call = "cudaDeviceEnablePeerAccess";
        let shown =
            memory.shown.ok_or_else(|| Failure(format!("{call}: peers do not reach memory so far up")))?;
        self.gpu.map_peer(cpu, shown, memory.bytes).map_err(failed(call))
    }

    /// Removes a mapping.
    pub fn unmap(&self, cpu: &Cpu, place: Place) {
        self.gpu.unmap(cpu, place);
    }

    /// Frees everything. No work may be in flight.
    pub fn close(&self, cpu: &Cpu) {
        self.gpu.close(cpu);
    }

    /// Index of the channel that copies into this GPU's memory.
    pub fn copies_in(&self) -> usize {
        1.min(self.channels.len() - 1)
    }

    /// Index of the channel that copies out of it; a separate one if there are two.
    pub fn copies_out(&self) -> usize {
        self.copies_out_by(0)
    }

    /// The same of a GPU's stream number `n`: streams take the engines that copy out in turn.
    pub fn copies_out_by(&self, n: usize) -> usize {
        let engines = self.channels.len().saturating_sub(2).max(1);
        self.channels.len() - 1 - n % engines
    }

    /// Address of a semaphore in host memory for this context.
    fn reach(&self, cpu: &Cpu, of: &GpuChannel) -> Result<Place, Failure> {
        if let Some((_, place)) = self.others.borrow().iter().find(|(at, _)| *at == of.semaphore) {
            return Ok(*place);
        }
        let bytes = wire::gpu::SEMAPHORE_BYTES;
        let place = self.gpu.map_host(cpu, of.semaphore, bytes).map_err(failed("cudaStreamWaitEvent"))?;
        self.others.borrow_mut().push((of.semaphore, place));
        Ok(place)
    }

    /// Whether a channel's semaphore has reached a value.
    ///
    /// # Errors
    /// If it has not, and the channel has stopped or the GPU is gone.
    fn has_reached(&self, cpu: &Cpu, channel: usize, value: u64) -> Result<bool, Failure> {
        let channel = &self.channels[channel].is;
        if cpu.load_u64(channel.semaphore) >= value {
            return Ok(true);
        }
        if let Some(fault) = self.gpu.fault(cpu, channel.number) {
            return Err(unsynchronised(format!("the GPU stopped: {fault:?}")));
        }
        if !self.gpu.is_present() {
            return Err(unsynchronised("the GPU has gone".into()));
        }
        Ok(false)
    }

    /// Submits work to a channel. Its semaphore reaches the returned value when all of it is done.
    ///
    /// # Errors
    /// If the channel has stopped, or its ring stays full.
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
        // The GPU reads the ring only after the doorbell.
        cpu.sfence();
        is.doorbell.write_u32(cpu, 0, (entry + 1) as u32);
        cpu.sync().await;
        Ok(entry + 1)
    }

    /// Spins until a channel's semaphore reaches a value, like `cudaDeviceSynchronize`.
    ///
    /// # Errors
    /// If the channel has stopped, the GPU is gone, or the wait times out.
    async fn wait(&self, cpu: &Cpu, channel: usize, value: u64) -> Result<(), Failure> {
        spin(cpu, YIELDS, || self.has_reached(cpu, channel, value)).await
    }
}

fn unsynchronised(why: String) -> Failure {
    Failure(format!("cudaDeviceSynchronize: {why}"))
}

/// Spins until work is done, after a while once in `yields`.
///
/// # Errors
/// Those of `is_done`, or if the wait times out.
async fn spin(
    cpu: &Cpu,
    yields: Duration,
    mut is_done: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let began = cpu.now();
    let _part = cpu.book(Part::Poll);
    loop {
        cpu.cycles(stream::SPIN).await;
        if is_done()? {
            return Ok(());
        }
        let waited = cpu.now().since(began);
        if waited >= PATIENCE {
            return Err(unsynchronised("the GPU does not answer".into()));
        }
        if waited >= SPINS {
            cpu.sleep(yields).await;
        }
    }
}
