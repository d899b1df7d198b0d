//! Messages of netperf and netserver on the control connection.

use platform::Error;
use platform::cpu::Cpu;
use platform::socket::TcpStream;
use units::Duration;

use super::{Memory, receive_all};

/// A kind of test, with netperf's name for `-t`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[clap(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Test {
    /// Bulk data in one direction.
    #[default]
    TcpStream,
    /// Bulk data from the page cache.
    TcpSendfile,
    /// Requests and responses in turn.
    TcpRr,
    /// Requests and responses by datagrams.
    UdpRr,
}

impl Test {
    /// Whether data go in one direction.
    pub fn streams(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpSendfile)
    }
}

/// Number of words per message.
const WORDS: usize = 5;
/// Bytes per message.
const BYTES: u32 = 8 * WORDS as u32;

/// The words of a message: the client's request, the server's port, or the server's result.
pub type Message = [u64; WORDS];

/// A request to the server: test, bytes of request and response, bytes per receive, and duration in picoseconds.
pub fn order(test: Test, (request, response): (u32, u32), buffer: u32, length: Duration) -> Message {
    [test as u64, request.into(), response.into(), buffer.into(), length.as_ps()]
}

/// The test that an [`order`] names by its number.
pub fn test_of(number: u64) -> Option<Test> {
    [Test::TcpStream, Test::TcpSendfile, Test::TcpRr, Test::UdpRr]
        .into_iter()
        .find(|&test| test as u64 == number)
}

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
