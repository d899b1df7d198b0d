//! Programs on the GPU: loads and stores of its processors, to GPU memory and over the bus.

use std::cell::Cell;
use std::rc::Rc;

use units::Duration;
use wire::gpu::{CHASE_BYTES, CHASE_LINE, Fault, Launch, Program};

use super::copy::Side;
use super::params::GpuParams;
use super::space::Space;
use crate::firmware::Port;

/// The processors that run a GPU's programs.
pub(super) struct Processors {
    pub params: Rc<GpuParams>,
    pub port: Port,
    pub space: Rc<Space>,
    pub clock: BoardClock,
}

/// The clock of the processors, which no other board shares: two GPUs that wait for each other never keep their
/// phases.
#[derive(Default)]
pub(super) struct BoardClock {
    /// What of a picosecond is left of the times so far, in parts per billion.
    left: Cell<u32>,
}

impl BoardClock {
    /// How long a time takes if the clock is slower by this error.
    fn takes(&self, time: Duration, error_ppb: i32) -> Duration {
        const BILLION: i128 = 1_000_000_000;
        let more = i128::from(time.as_ps()) * i128::from(error_ppb) + i128::from(self.left.get());
        self.left.set(more.rem_euclid(BILLION) as u32);
        Duration::from_ps((i128::from(time.as_ps()) + more.div_euclid(BILLION)).max(0) as u64)
    }
}

impl Processors {
    /// Takes a time of the GPU's own clock.
    async fn pause(&self, time: Duration) {
        self.space.pause(self.clock.takes(time, self.params.clock_error_ppb)).await;
    }

    /// A program's load of a word over the bus.
    async fn loaded(&self, from: Side) -> Result<u64, Fault> {
        self.pause(self.params.access).await;
        let value = self.space.load(from).await?;
        self.pause(self.params.access).await;
        Ok(value)
    }

    /// A program's load of a line so far from a place.
    async fn line(&self, from: Side, offset: u64) -> Result<(), Fault> {
        match from {
            Side::Local(_) => self.pause(self.params.local_load).await,
            Side::Bus(at) => {
                self.pause(self.params.access).await;
                self.space.read(at + offset, CHASE_LINE as u32).await?;
                self.pause(self.params.access).await;
            }
        }
        Ok(())
    }

    /// A program's store of a word.
    async fn stored(&self, to: Side, value: u64) {
        if let Side::Bus(_) = to {
            self.pause(self.params.store).await;
        }
        self.space.store(to, &value.to_le_bytes());
    }

    /// Polls a word until it reaches `value`. Over the bus, the next read begins when the last one has returned. In GPU
    /// memory, the threads of a program poll in turn.
    async fn wait_until(&self, polled: Side, value: u64) -> Result<(), Fault> {
        if let Side::Bus(_) = polled {
            while self.loaded(polled).await? < value {}
            return Ok(());
        }
        let half = self.params.local_load / 2;
        self.pause(half).await;
        while self.space.load(polled).await? < value {
            self.pause(self.params.poll_interval).await;
        }
        // The word was written by a peer, and takes time to become visible to programs.
        self.pause(self.params.incoming + half).await;
        Ok(())
    }

    /// Runs a program to its end.
    pub async fn run(&self, context: u16, launch: Launch) -> Result<(), Fault> {
        self.pause(self.params.launch).await;
        if launch.program == Program::Busy {
            self.pause(Duration::from_ns(launch.count.into())).await;
            return Ok(());
        }
        let loads = launch.program == Program::Chase;
        let polled = self.space.resolve(context, launch.polled, if loads { CHASE_BYTES } else { 8 })?;
        let written = self.space.resolve(context, launch.written, 8)?;
        let result = self.space.resolve(context, launch.result, 8)?;
        let began = self.port.now();
        for round in 1..=u64::from(launch.count) {
            if loads {
                self.line(polled, round * CHASE_LINE % CHASE_BYTES).await?;
                continue;
            }
            if launch.program == Program::Ping {
                self.stored(written, round).await;
            }
            self.wait_until(polled, round).await?;
            if launch.program == Program::Pong {
                self.stored(written, round).await;
            }
        }
        let took = self.port.now().since(began).as_ps() / 1_000;
        self.space.store(result, &took.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over many short times the error adds up to what it is of their sum, though each is less than a picosecond.
    #[test]
    fn a_clock_that_is_off_by_little_is_off_in_the_long_run() {
        let time = Duration::from_ns(10);
        for (error_ppb, after_a_million) in [(0, 0), (30_000, 300_000), (-30_000, -300_000), (-7, -70)] {
            let clock = BoardClock::default();
            let took: u64 = (0..1_000_000).map(|_| clock.takes(time, error_ppb).as_ps()).sum();
            assert_eq!(took as i64 - 10_000 * 1_000_000, after_a_million, "{error_ppb}");
        }
    }
}
