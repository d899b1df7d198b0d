//! Streams and their operations.
//!
//! The costs of calls were fitted on a Xeon E5-2603 v4, whose cores run at a fixed 1.7 GHz.

use std::rc::Rc;

use platform::cpu::Cpu;
use platform::gpu::GpuMemory;
use platform::kernel::Kernel;
use units::{Duration, Time};
use wire::gpu::{GpuCommand, Launch, Place, SEMAPHORE_BYTES};

use super::{Context, HostMemory, YIELDS, spin};
use crate::program::Failure;

/// Cycles of a copy call from host to GPU (fitted by hand: Device Lending, Figure 10, Loc, 1 KiB: a copy every 2.2
/// us, mostly GPU time; a larger value would show).
const COPY_IN: u64 = 2_800;
/// Cycles of a copy call from GPU to host or to another GPU (fitted by hand: Device Lending, Figure 10, Loc: up to 16
/// KiB, a copy takes 3.93 us whatever its size, and as long with a remote GPU, so this is the program's time).
const COPY_OUT: u64 = 6_300;
/// Cycles of a kernel launch (assumed: 3 us; such calls take 3 to 6 us).
const LAUNCH: u64 = 5_000;
/// Cycles to record an event, or to make a stream wait for another channel (assumed: half a microsecond).
const RECORD: u64 = 800;
/// Cycles per iteration of a polling loop (assumed: loads and compares, with pauses).
pub(super) const SPIN: u64 = 400;
/// Polling interval of who measures when work is done (assumed: events have times of the GPU's clock).
const MEASURES: Duration = Duration::from_us(1);
/// Size of each of the two staging buffers for a copy between GPUs without peer access (measured: Device Lending,
/// Figure 12, Loc-RAM-Root: up to 1 MiB both halves are sequential, beyond they overlap: 2 MiB take as long as three
/// times 1 MiB one way, 4 MiB as five times).
pub const STAGE: u64 = 1 << 20;

/// The channel and semaphore value of a stream's latest work.
struct Latest {
    context: Rc<Context>,
    channel: usize,
    value: u64,
}

/// Work executed in order.
#[derive(Default)]
pub struct CudaStream {
    latest: Option<Latest>,
}

/// A timestamp in a stream, in nanoseconds of the GPU's clock.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    at: platform::memory::PhysAddr,
}

/// Memory for events.
pub struct Events {
    memory: HostMemory,
    places: Vec<(Rc<Context>, Place)>,
    used: u64,
}

impl Events {
    /// Memory for `count` events, which streams on any of the GPUs may record.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(
        kernel: &dyn Kernel,
        cpu: &Cpu,
        contexts: &[Rc<Context>],
        count: u64,
    ) -> Result<Self, Failure> {
        let memory = HostMemory::take(kernel, cpu, count * SEMAPHORE_BYTES)?;
        let place = |context: &Rc<Context>| Ok((Rc::clone(context), context.map(cpu, &memory)?));
        let places = contexts.iter().map(place).collect::<Result<_, Failure>>()?;
        Ok(Self { memory, places, used: 0 })
    }

    /// Frees the memory.
    pub fn give(self, kernel: &dyn Kernel, cpu: &Cpu) {
        for (context, place) in &self.places {
            context.unmap(cpu, *place);
        }
        self.memory.give(kernel, cpu);
    }
}

impl Event {
    /// Nanoseconds from another event to this one. Both must have occurred.
    pub fn since(&self, cpu: &Cpu, other: &Self) -> u64 {
        let time = |event: &Self| cpu.load_u64(event.at + 8);
        time(self).saturating_sub(time(other))
    }
}

impl CudaStream {
    /// Appends commands for a channel to the stream.
    async fn put(
        &mut self,
        cpu: &Cpu,
        context: &Rc<Context>,
        channel: usize,
        commands: &[GpuCommand],
    ) -> Result<(), Failure> {
        let mut all = Vec::with_capacity(commands.len() + 1);
        if let Some(latest) = &self.latest
            && (!Rc::ptr_eq(&latest.context, context) || latest.channel != channel)
        {
            let of = &latest.context.channels[latest.channel].is;
            let at = match Rc::ptr_eq(&latest.context, context) {
                true => of.semaphore_at,
                false => context.reach(cpu, of)?,
            };
            cpu.work(RECORD);
            all.push(GpuCommand::Acquire { at, value: latest.value });
        }
        all.extend_from_slice(commands);
        let value = context.submit(cpu, channel, &all).await?;
        self.latest = Some(Latest { context: Rc::clone(context), channel, value });
        Ok(())
    }

    /// Copies from host memory to GPU memory (`cudaMemcpyAsync`).
    ///
    /// # Errors
    /// As all stream calls: if the GPU has stopped or is gone.
    pub async fn copy_in(
        &mut self,
        cpu: &Cpu,
        context: &Rc<Context>,
        (to, from): (Place, Place),
        bytes: u64,
    ) -> Result<(), Failure> {
        cpu.cycles(COPY_IN).await;
        self.put(cpu, context, context.copies_in(), &[GpuCommand::Copy { from, to, bytes }]).await
    }

    /// Copies from GPU memory to host memory (`cudaMemcpyAsync`) or to another GPU (`cudaMemcpyPeerAsync`).
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn copy_out(
        &mut self,
        cpu: &Cpu,
        context: &Rc<Context>,
        (to, from): (Place, Place),
        bytes: u64,
    ) -> Result<(), Failure> {
        self.copy_out_by(cpu, context, context.copies_out(), (to, from), bytes).await
    }

    /// As [`copy_out`](Self::copy_out), by this channel of the context.
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn copy_out_by(
        &mut self,
        cpu: &Cpu,
        context: &Rc<Context>,
        channel: usize,
        (to, from): (Place, Place),
        bytes: u64,
    ) -> Result<(), Failure> {
        cpu.cycles(COPY_OUT).await;
        self.put(cpu, context, channel, &[GpuCommand::Copy { from, to, bytes }]).await
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn launch(&mut self, cpu: &Cpu, context: &Rc<Context>, launch: Launch) -> Result<(), Failure> {
        cpu.cycles(LAUNCH).await;
        self.put(cpu, context, 0, &[GpuCommand::Launch(launch)]).await
    }

    /// Records an event on the channel of the stream's latest work, or else on the compute channel
    /// (`cudaEventRecord`).
    ///
    /// # Errors
    /// As all stream calls; also if there is no memory for another event.
    pub async fn record(
        &mut self,
        cpu: &Cpu,
        context: &Rc<Context>,
        events: &mut Events,
    ) -> Result<Event, Failure> {
        cpu.cycles(RECORD).await;
        let latest = self.latest.as_ref().map(|latest| (Rc::clone(&latest.context), latest.channel));
        let (context, channel) = latest.unwrap_or_else(|| (Rc::clone(context), 0));
        let offset = events.used * SEMAPHORE_BYTES;
        let found = events.places.iter().find(|(of, _)| Rc::ptr_eq(of, &context));
        let Some((_, place)) = found.filter(|_| offset + SEMAPHORE_BYTES <= events.memory.bytes) else {
            return Err(Failure("cudaEventRecord: there is no room for another event".into()));
        };
        events.used += 1;
        self.put(cpu, &context, channel, &[GpuCommand::Release { at: place.after(offset), value: 1 }])
            .await?;
        Ok(Event { at: events.memory.start() + offset })
    }

    /// Spins until all work of the stream is done (`cudaStreamSynchronize`).
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn synchronise(&self, cpu: &Cpu) -> Result<(), Failure> {
        Self::synchronise_all(cpu, std::slice::from_ref(self)).await
    }

    /// As [`synchronise`](Self::synchronise), for several streams. If one fails, the others may wait for it forever, so
    /// this ends as well.
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn synchronise_all(cpu: &Cpu, streams: &[Self]) -> Result<(), Failure> {
        let all: Vec<&Latest> = streams.iter().filter_map(|stream| stream.latest.as_ref()).collect();
        spin(cpu, YIELDS, || {
            let mut are_done = true;
            for Latest { context, channel, value } in &all {
                are_done &= context.has_reached(cpu, *channel, *value)?;
            }
            Ok(are_done)
        })
        .await
    }

    /// Waits for the work of all streams. Returns when each was first seen to be done.
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn ends_of(cpu: &Cpu, streams: &[Self]) -> Result<Vec<Time>, Failure> {
        let mut ends = vec![None; streams.len()];
        let mut done = vec![false; streams.len()];
        spin(cpu, MEASURES, || {
            for (done, stream) in done.iter_mut().zip(streams) {
                *done = match &stream.latest {
                    Some(Latest { context, channel, value }) => context.has_reached(cpu, *channel, *value)?,
                    None => true,
                };
            }
            let now = cpu.now();
            ends.iter_mut()
                .zip(&done)
                .filter(|(_, done)| **done)
                .for_each(|(end, _)| _ = end.get_or_insert(now));
            Ok(!done.contains(&false))
        })
        .await?;
        Ok(ends.into_iter().flatten().collect())
    }
}

/// Two staging buffers in host memory for copies between GPUs without peer access, like the driver's: the second GPU
/// reads one while the first writes the other.
pub struct Stage {
    memory: HostMemory,
    places: [Place; 2],
    /// For each buffer, the second GPU's work that must finish before its reuse.
    last: [Option<u64>; 2],
    out: CudaStream,
}

impl Stage {
    /// Creates staging buffers for two GPUs.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(kernel: &dyn Kernel, cpu: &Cpu, [from, to]: [&Context; 2]) -> Result<Self, Failure> {
        let memory = HostMemory::take(kernel, cpu, 2 * STAGE)?;
        let places = [from.map(cpu, &memory)?, to.map(cpu, &memory)?];
        Ok(Self { memory, places, last: [None; 2], out: CudaStream::default() })
    }

    /// Copies piece by piece, as part of `stream`.
    ///
    /// # Errors
    /// As all stream calls.
    pub async fn copy(
        &mut self,
        cpu: &Cpu,
        stream: &mut CudaStream,
        [from, to]: [(&Rc<Context>, &GpuMemory); 2],
        bytes: u64,
    ) -> Result<(), Failure> {
        let (out, into) = (from.0.copies_out(), to.0.copies_in());
        // The first GPU's writes follow the stream's earlier work.
        self.out.latest = stream.latest.take();
        for (piece, at) in (0..bytes).step_by(STAGE as usize).enumerate() {
            let length = STAGE.min(bytes - at);
            let half = piece % 2;
            let [written, read] = self.places.map(|place| place.after(half as u64 * STAGE));
            cpu.cycles(COPY_OUT).await;
            let mut commands = Vec::new();
            if let Some(value) = self.last[half] {
                let at = from.0.reach(cpu, &to.0.channels[into].is)?;
                commands.push(GpuCommand::Acquire { at, value });
            }
            commands.push(GpuCommand::Copy { from: from.1.place.after(at), to: written, bytes: length });
            self.out.put(cpu, from.0, out, &commands).await?;
            cpu.cycles(COPY_IN).await;
            let sent = self.out.latest.as_ref().map_or(0, |latest| latest.value);
            let semaphore = to.0.reach(cpu, &from.0.channels[out].is)?;
            let commands = [
                GpuCommand::Acquire { at: semaphore, value: sent },
                GpuCommand::Copy { from: read, to: to.1.place.after(at), bytes: length },
            ];
            let value = to.0.submit(cpu, into, &commands).await?;
            self.last[half] = Some(value);
            stream.latest = Some(Latest { context: Rc::clone(to.0), channel: into, value });
        }
        Ok(())
    }

    /// Frees the buffers. No work may be in flight.
    pub fn give(self, kernel: &dyn Kernel, cpu: &Cpu, [from, to]: [&Context; 2]) {
        from.unmap(cpu, self.places[0]);
        to.unmap(cpu, self.places[1]);
        self.memory.give(kernel, cpu);
    }
}
