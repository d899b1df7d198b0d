//! Messages of netperf and netserver on the control connection.

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::socket::TcpStream;
use units::Duration;

use super::{Memory, receive_all};

/// A kind of test, with netperf's name for `-t`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[clap(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Test {
    /// Bulk data to the server.
    #[default]
    TcpStream,
    /// Bulk data from the page cache.
    TcpSendfile,
    /// Requests and responses in turn.
    TcpRr,
    /// Requests and responses by datagrams.
    UdpRr,
    /// Bulk data from the server.
    TcpMaerts,
    /// Datagrams to the server.
    UdpStream,
    /// Requests and responses, each on a connection of its own.
    TcpCrr,
    /// One of the others, which `-d` and `-T` behind `--` choose.
    #[value(name = "omni", alias = "OMNI")]
    Omni,
}

impl Test {
    const ALL: [Self; 8] = [
        Self::TcpStream,
        Self::TcpSendfile,
        Self::TcpRr,
        Self::UdpRr,
        Self::TcpMaerts,
        Self::UdpStream,
        Self::TcpCrr,
        Self::Omni,
    ];

    /// Whether data go in one direction.
    pub fn streams(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpSendfile | Self::TcpMaerts | Self::UdpStream)
    }

    /// Whether data go as datagrams.
    pub fn is_udp(self) -> bool {
        matches!(self, Self::UdpRr | Self::UdpStream)
    }
}

/// When a test ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TestLength {
    /// After this time.
    Time(Duration),
    /// After so many bytes of a stream, or transactions.
    Count(u64),
}

/// What a client asks of a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TestOrder {
    pub test: Test,
    /// The server's core, if it is to be one.
    pub core: Option<CpuId>,
    /// Bytes of request and response.
    pub sizes: (u32, u32),
    /// Bytes per send and per receive.
    pub calls: (u32, u32),
    pub extent: TestLength,
    /// Bytes of the server's socket buffers; 0 for its own choice.
    pub buffers: u32,
}

/// Marks a count in the place of a duration.
const COUNT: u64 = 1 << 63;

impl TestOrder {
    pub fn message(&self) -> Message {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let core = self.core.map_or(0, |core| u32::from(core.0) + 1);
        let extent = match self.extent {
            TestLength::Time(time) => time.as_ps(),
            TestLength::Count(count) => count | COUNT,
        };
        [
            pair(self.test as u32, core),
            pair(self.sizes.0, self.sizes.1),
            pair(self.calls.0, self.calls.1),
            extent,
            self.buffers.into(),
        ]
    }

    /// # Errors
    /// [`Error::Invalid`] if a test is unknown or a size impossible.
    pub fn of(message: Message) -> Result<Self, Error> {
        let [what, sizes, calls, extent, buffers] = message;
        let pair = |word: u64| (word as u32, (word >> 32) as u32);
        let (test, core) = pair(what);
        let test = Test::ALL.into_iter().find(|&known| known as u32 == test).ok_or(Error::Invalid)?;
        let (sizes, calls) = (pair(sizes), pair(calls));
        let possible = [sizes.0, sizes.1, calls.0, calls.1].iter().all(|&size| size <= super::MOST);
        let extent = match extent & COUNT {
            0 => TestLength::Time(Duration::from_ps(extent)),
            _ => TestLength::Count(extent & !COUNT),
        };
        let core = core.checked_sub(1).map(|core| CpuId(core as u16));
        let buffers = buffers as u32;
        possible.then_some(Self { test, core, sizes, calls, extent, buffers }).ok_or(Error::Invalid)
    }
}

/// Number of words per message.
const WORDS: usize = 5;
/// Bytes per message.
const BYTES: u32 = 8 * WORDS as u32;

/// The words of a message: the client's order, the server's port, or the server's result.
pub type Message = [u64; WORDS];

pub async fn send(cpu: &Cpu, stream: &dyn TcpStream, memory: &Memory, message: Message) -> Result<(), Error> {
    for (n, word) in (0u64..).zip(message) {
        cpu.store(memory.pages.start + 8 * n, &word.to_be_bytes());
    }
    stream.send(cpu, memory.first(BYTES)).await
}

/// Receives the next message; `None` if the peer has closed.
pub async fn receive(cpu: &Cpu, stream: &dyn TcpStream, memory: &Memory) -> Result<Option<Message>, Error> {
    if !receive_all(cpu, stream, memory, BYTES).await? {
        return Ok(None);
    }
    let mut message = [0; WORDS];
    for (n, word) in (0u64..).zip(&mut message) {
        let mut bytes = [0; 8];
        cpu.load(memory.pages.start + 8 * n, &mut bytes);
        *word = u64::from_be_bytes(bytes);
    }
    Ok(Some(message))
}
