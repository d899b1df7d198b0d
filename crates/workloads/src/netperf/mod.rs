//! netperf and its server: streams and transactions over TCP and UDP.
//!
//! As in the original, a control connection (port 12865) announces the test to the server, and returns the server's
//! measurements.
//!
//! | file | subject |
//! |---|---|
//! | `control` | messages of client and server |
//! | `client`, `server` | the two programs |

mod client;
mod control;
mod server;

pub use client::Netperf;
pub use server::Netserver;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::socket::TcpStream;
use units::{Duration, Time};

/// Port of control connections.
const PORT: u16 = 12_865;

/// A one-shot timer that bounds all waits of a test.
struct Alarm(Option<Async<'static, ()>>);

impl Alarm {
    fn at(cpu: &Cpu, when: Time) -> Self {
        let cpu = cpu.clone();
        Self(Some(Box::pin(async move { cpu.sleep_until(when).await })))
    }

    /// The output of `future`, or `None` if the alarm goes off first.
    async fn unless<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => match &mut self.0 {
                Some(timer) => timer.as_mut().poll(context).map(|()| {
                    self.0 = None;
                    None
                }),
                None => Poll::Ready(None),
            },
        })
        .await
    }
}

/// A user buffer of a program.
struct Memory {
    pages: Pages,
    length: u32,
}

impl Memory {
    fn take(kernel: &Rc<dyn Kernel>, cpu: &Cpu, length: u32) -> Result<Self, Error> {
        let pages = kernel.alloc_pages(cpu, Pages::order_for(length.max(1).into()), Policy::Task)?;
        Ok(Self { pages, length })
    }

    fn segment(&self) -> Segment {
        Segment { at: self.pages.start, length: self.length }
    }

    fn first(&self, length: u32) -> Segment {
        Segment { at: self.pages.start, length: length.min(self.length) }
    }
}

/// Receives exactly `length` bytes; `false` at the end of the stream.
async fn receive_all(cpu: &Cpu, stream: &dyn TcpStream, into: &Memory, length: u32) -> Result<bool, Error> {
    let mut done = 0;
    while done < length {
        let room = Segment { at: into.pages.start + u64::from(done), length: length - done };
        match stream.recv(cpu, room).await? {
            0 => return Ok(false),
            taken => done += taken,
        }
    }
    Ok(true)
}

/// Busy time of a host's cores by part.
fn busy(kernel: &Rc<dyn Kernel>) -> [Duration; Part::ALL.len()] {
    let mut total = [Duration::ZERO; Part::ALL.len()];
    for cpu in 0..kernel.cpus() {
        for (sum, time) in total.iter_mut().zip(kernel.busy(CpuId(cpu))) {
            *sum += time;
        }
    }
    total
}

/// Busy time since `before`, all parts together.
fn busy_since(kernel: &Rc<dyn Kernel>, before: [Duration; Part::ALL.len()]) -> Duration {
    busy(kernel).into_iter().zip(before).map(|(now, before)| now - before).sum()
}
