//! What runs on the GPU itself: loads and stores of its processors, to its own memory and by the bus.

use std::cell::Cell;
use std::rc::Rc;

use units::Duration;
use wire::gpu::{Fault, Launch, Program};

use super::Chip;
use super::copy::Side;

/// Loads of a program that are under way at once (assumed: one for each thread of a warp). Without a bound, a far memory would be
/// asked more often than it answers, and later and later.
const LOOKS: u32 = 32;

impl Chip {
    /// A program's load of a word, past the caches.
    async fn loaded(&self, from: Side) -> Result<u64, Fault> {
        match from {
            Side::Local(_) => {
                let half = self.params.local_load / 2;
                self.pause(half).await;
                let value = self.load(from).await?;
                self.pause(half).await;
                Ok(value)
            }
            Side::Bus(_) => {
                self.pause(self.params.access).await;
                let value = self.load(from).await?;
                self.pause(self.params.access).await;
                Ok(value)
            }
        }
    }

    /// A program's store of a word.
    async fn stored(&self, to: Side, value: u64) {
        if let Side::Bus(_) = to {
            self.pause(self.params.access).await;
        }
        self.store(to, &value.to_le_bytes());
    }

    /// Looks at a word until it has come so far. Looks overlap: a program does not wait for one before it begins the next.
    async fn wait_until(self: &Rc<Self>, polled: Side, value: u64) -> Result<(), Fault> {
        let (seen, under_way) = (Rc::new(Cell::new(Ok(0))), Rc::new(Cell::new(0)));
        loop {
            if under_way.get() < LOOKS {
                let (me, told, left) = (Rc::clone(self), Rc::clone(&seen), Rc::clone(&under_way));
                left.set(left.get() + 1);
                self.keep(self.port.spawn(async move {
                    told.set(me.loaded(polled).await);
                    left.set(left.get() - 1);
                }));
            }
            self.pause(self.params.poll_interval).await;
            if seen.get()? >= value {
                return Ok(());
            }
        }
    }

    /// Runs a program to its end.
    pub(super) async fn launch(self: &Rc<Self>, context: u16, launch: Launch) -> Result<(), Fault> {
        self.pause(self.params.launch).await;
        if launch.program == Program::Busy {
            self.pause(Duration::from_ns(launch.count.into())).await;
            return Ok(());
        }
        let polled = self.resolve(context, launch.polled, 8)?;
        let written = self.resolve(context, launch.written, 8)?;
        let result = self.resolve(context, launch.result, 8)?;
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
        self.store(result, &took.to_le_bytes());
        Ok(())
    }
}
