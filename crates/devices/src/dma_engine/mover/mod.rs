//! The data mover between the card's PCIe core and its memory, and the completion times that firmware waits for.
//!
//! Completions leave the receive buffer one after the other. Data read by the DMA interface crosses a bus, which writes
//! use in the other direction, and is written to memory in chunks. The command interface passes data straight to the
//! firmware. Posted requests leave on a path with a width of its own.

mod params;
mod stages;

use platform::device::{Dma, Token};
use platform::mover::{Answered, Arrival, DataMover, MoverBusy, Outgoing, Progress};
use units::{Duration, Time};

pub use params::{
    BusParams, DrainParams, EngineParams, Linear, LocalMemoryParams, MoverParams, TransmitParams,
    WriteOutParams,
};
use stages::{Bus, BusDirection, Drain, Memory, Transmit};

/// Header, sequence number, LCRC and framing of a completion, in bytes.
const COMPLETION_OVERHEAD: u64 = 20;

/// Content of a DMA's token: the interface used, and the data's address in the card's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transfer {
    /// Uses the command interface.
    pub is_command: bool,
    /// Address in the card's memory; unaligned data costs more.
    pub local: u32,
}

impl Transfer {
    pub fn token(self) -> Token {
        Token(u64::from(self.is_command) << 32 | u64::from(self.local))
    }

    fn of(dma: &Dma) -> Self {
        Self { is_command: dma.token.0 >> 32 != 0, local: dma.token.0 as u32 }
    }
}

/// The card's data mover.
pub(super) struct Mover {
    params: MoverParams,
    drain: Drain,
    bus: Bus,
    memory: Memory,
    path: Transmit,
}

impl Mover {
    /// An idle mover.
    pub fn new(params: MoverParams) -> Self {
        Self {
            drain: Drain::new(params.drain),
            bus: Bus::new(params.bus),
            memory: Memory::default(),
            path: Transmit::new(params.transmit),
            params,
        }
    }
}

impl MoverParams {
    /// The interface and the card address of a transfer.
    fn engine(&self, dma: &Dma) -> (&EngineParams, u64) {
        let Transfer { is_command, local } = Transfer::of(dma);
        (if is_command { &self.command } else { &self.dma }, local.into())
    }
}

impl DataMover for Mover {
    fn start_latency(&self, dma: &Dma) -> Duration {
        self.params.engine(dma).0.start_latency
    }

    #[inline(always)]
    fn completion(&mut self, now: Time, dma: &Dma, read: &mut Progress, arrival: &Arrival) -> Time {
        let out = self.drain.take(now, arrival.wire_bytes, arrival.first);
        let (engine, _) = self.params.engine(dma);
        let Some(memory) = &engine.memory else {
            hand_over(engine, now, read, arrival);
            return out;
        };
        write_out(memory, now, read, arrival);
        self.bus.pass(now, BusDirection::In, arrival.bytes).max(out)
    }

    #[inline(always)]
    fn answered(
        &mut self,
        now: Time,
        dma: &Dma,
        read: &Progress,
        request: &Answered,
        drained: Time,
    ) -> (Time, Time) {
        let (engine, local) = self.params.engine(dma);
        let known = read.in_place.max(now) + engine.read_done_latency;
        let Some(memory) = &engine.memory else { return (drained, known) };
        if request.length == dma.length && memory.is_whole(local, dma.length) {
            // Fast path for most transfers: nothing is shifted, and all of it is one operation.
            return (drained.max(self.memory.write_once(drained, memory)), known);
        }
        let out = &memory.write_out;
        let at = local + u64::from(request.offset);
        let mut there = drained;
        // Data that does not start at a word boundary is shifted when it is written out, which takes extra time.
        if !memory.is_at_word(at) {
            // The last line is shifted while the next transfer begins.
            let last = out.per_completion * u64::from(read.completions.saturating_sub(1))
                + Duration::from_ps(64 * u64::from(out.ps_per_byte));
            there = drained.max(Time::from_ps(read.in_place.as_ps().saturating_sub(last.as_ps())));
        }
        let ragged = request.largest <= memory.chunk;
        let written = self.memory.write(there, memory, at, u64::from(request.length), ragged);
        (drained.max(written), known + memory.uneven(local, dma.length))
    }

    fn fetch(&mut self, now: Time, dma: &Dma) -> Time {
        let (engine, local) = self.params.engine(dma);
        let Some(memory) = &engine.memory else { return now };
        let length = u64::from(dma.length);
        self.drain.give_way(now, length);
        let passed = self.bus.pass(now, BusDirection::Out, length);
        passed.max(self.memory.read(now, memory, local, length))
    }

    fn send(&mut self, now: Time, ready: Time, tlp: &Outgoing) -> (Time, Time) {
        self.path.send(now, ready, tlp)
    }

    fn write_known(&self, now: Time, dma: &Dma, gone: Time) -> Time {
        let (engine, _) = self.params.engine(dma);
        // Relative to the request's arrival at the engine: the engine's start latency has already passed.
        let known = |stage: &Linear| stage.time_for(dma.length.into()).saturating_sub(engine.start_latency);
        engine.write_done.iter().fold(gone, |at, stage| at.max(now + known(stage)))
    }

    fn busy(&self, now: Time) -> MoverBusy {
        MoverBusy {
            drain: self.drain.busy.until(now),
            bus: self.bus.busy.until(now),
            memory_read: self.memory.busy[0].until(now),
            memory_written: self.memory.busy[1].until(now),
            transmit: self.path.busy.until(now),
        }
    }

    fn reset(&mut self, now: Time) {
        let before = std::mem::replace(self, Self::new(self.params.clone()));
        (self.drain.busy, self.bus.busy) = (before.drain.busy, before.bus.busy);
        (self.memory.busy, self.path.busy) = (before.memory.busy, before.path.busy);
        let [read, written] = &mut self.memory.busy;
        let all = [&mut self.drain.busy, &mut self.bus.busy, read, written, &mut self.path.busy];
        all.into_iter().for_each(|busy| busy.cancel(now));
    }
}

/// Passes a completion's data to the firmware, after that of the previous completion.
fn hand_over(engine: &EngineParams, now: Time, read: &mut Progress, arrival: &Arrival) {
    let mut time = Duration::from_ps(arrival.bytes * u64::from(engine.hand_over_ps_per_byte));
    if read.completions > 0 {
        time += engine.hand_over_per_completion;
    }
    read.completions += 1;
    read.in_place = read.in_place.max(now) + time;
}

/// Writes a completion's data to the card's memory, piece by piece as it arrives.
#[inline(always)]
fn write_out(memory: &LocalMemoryParams, now: Time, read: &mut Progress, arrival: &Arrival) {
    let out = &memory.write_out;
    let chunk = u64::from(memory.chunk);
    let byte_time = |bytes: u64| Duration::from_ps((bytes as f64 * arrival.ps_per_byte) as u64);
    // All data of a single piece is there now.
    let mut arrived =
        if arrival.bytes > chunk { arrival.began + byte_time(COMPLETION_OVERHEAD) } else { now };
    read.completions += 1;
    let (mut left, mut first_of_completion) = (arrival.bytes, true);
    while left > 0 {
        let piece = left.min(chunk);
        left -= piece;
        arrived = if left == 0 { now } else { arrived + byte_time(piece) };
        let mut time = Duration::from_ps(piece * u64::from(out.ps_per_byte));
        if read.pieces > 0 && first_of_completion {
            // The first chunk is rewritten; data for later chunks is gathered behind it.
            time += if arrival.offset < chunk { out.within_chunk } else { out.per_completion };
        }
        read.in_place = read.in_place.max(arrived) + time;
        read.pieces += 1;
        first_of_completion = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A token alone describes a transfer.
        #[test]
        fn a_token_says_what_its_transfer_is(is_command: bool, local: u32) {
            let transfer = Transfer { is_command, local };
            let dma = Dma {
                function: Default::default(),
                address: units::Iova::new(0),
                length: 64,
                token: transfer.token(),
                attributes: Default::default(),
            };
            prop_assert_eq!(Transfer::of(&dma), transfer);
        }
    }

    /// A reset keeps the busy times, and drops transfers in progress.
    #[test]
    fn a_reset_keeps_what_was_counted() {
        let transmit = TransmitParams { ps_per_byte: 100, ..TransmitParams::default() };
        let mut mover = Mover::new(MoverParams { transmit, ..MoverParams::default() });
        let tlp = Outgoing { is_long: false, payload: 64, max_payload: 256, first: true, last: true };
        let (_, free) = mover.send(Time::ZERO, Time::ZERO, &tlp);
        let busy = mover.busy(free);
        mover.reset(free);
        assert_eq!(mover.busy(free), busy);
        let again = free + Duration::from_us(1);
        let (start, end) = mover.send(again, again, &tlp);
        assert_eq!((start, end - start), (again, free - Time::ZERO));
        assert_eq!(mover.busy(end).transmit, busy.transmit * 2);
    }
}
