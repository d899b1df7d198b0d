//! netperf and its server: streams and transactions over TCP and UDP.
//!
//! As in the original, a control connection (port 12865) announces the test to the server, and returns the server's
//! measurements.
//!
//! | file | subject |
//! |---|---|
//! | `control` | messages of client and server |
//! | `client`, `server` | the two programs |
//! | `options` | the client's options, and those of a test |
//! | `confidence` | repeated tests (`-i`, `-I`) |
//! | `selectors` | output by names (`-k`, `-o`) |

mod client;
mod confidence;
mod control;
mod options;
mod selectors;
mod server;

pub use options::Netperf;
pub(crate) use options::UNMODELLED;
pub use server::Netserver;
pub(crate) use server::UNMODELLED as SERVER_UNMODELLED;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::socket::TcpStream;
use units::Time;

/// Port of control connections.
const PORT: u16 = 12_865;

/// Most bytes of a request, a response, a send or a receive.
const MOST: u32 = 1 << 22;

/// Whether a test that has done so much goes on.
fn is_going_on(cpu: &Cpu, began: Time, extent: control::TestLength, done: u64) -> bool {
    match extent {
        control::TestLength::Time(length) => cpu.now() < began + length,
        control::TestLength::Count(count) => done < count,
    }
}

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
