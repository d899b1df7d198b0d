//! Programs on the GPU: loads and stores of its processors, to GPU memory and over the bus.

use std::rc::Rc;

use units::Duration;
use wire::gpu::{Fault, Launch, Program};

use super::copy::Side;
use super::params::GpuParams;
use super::space::Space;
use crate::firmware::Port;

/// The processors that run a GPU's programs.
pub(super) struct Processors {
    pub params: Rc<GpuParams>,
    pub port: Port,
    pub space: Rc<Space>,
}

impl Processors {
    /// A program's load of a word over the bus.
    async fn loaded(&self, from: Side) -> Result<u64, Fault> {
        self.space.pause(self.params.access).await;
        let value = self.space.load(from).await?;
        self.space.pause(self.params.access).await;
        Ok(value)
    }

    /// A program's store of a word.
    async fn stored(&self, to: Side, value: u64) {
        if let Side::Bus(_) = to {
            self.space.pause(self.params.store).await;
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
        self.space.pause(half).await;
        while self.space.load(polled).await? < value {
            self.space.pause(self.params.poll_interval).await;
        }
        // The word was written by a peer, and takes time to become visible to programs.
        self.space.pause(self.params.incoming + half).await;
        Ok(())
    }

    /// Runs a program to its end.
    pub async fn run(&self, context: u16, launch: Launch) -> Result<(), Fault> {
        self.space.pause(self.params.launch).await;
        if launch.program == Program::Busy {
            self.space.pause(Duration::from_ns(launch.count.into())).await;
            return Ok(());
        }
        let polled = self.space.resolve(context, launch.polled, 8)?;
        let written = self.space.resolve(context, launch.written, 8)?;
        let result = self.space.resolve(context, launch.result, 8)?;
        let began = self.port.now();
        for round in 1..=u64::from(launch.count) {
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
