//! What netperf and netserver tell each other over the control connection.

use platform::Error;
use platform::cpu::Cpu;
use platform::socket::TcpStream;
use units::Duration;

use super::{Memory, receive_all};

/// A kind of test, as netperf's `-t` spells it.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[clap(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Test {
    /// One direction, as much as goes.
    #[default]
    TcpStream,
    /// The same, from the pages of a file.
    TcpSendfile,
    /// A request, an answer, the next.
    TcpRr,
    /// The same with datagrams.
    UdpRr,
}

impl Test {
    /// Whether data goes one way.
    pub fn streams(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpSendfile)
    }
}

/// Numbers of a message.
const WORDS: usize = 5;
/// Bytes of a message.
const BYTES: u32 = 8 * WORDS as u32;

/// Numbers that are sent together: the client's order, the server's port, the server's result.
pub type Message = [u64; WORDS];

/// The order to the server: the test, bytes of request and response, of a receive, and the test's length in picoseconds.
pub fn order(test: Test, (request, response): (u32, u32), buffer: u32, length: Duration) -> Message {
    [test as u64, request.into(), response.into(), buffer.into(), length.as_ps()]
}

/// The test that a number stands for.
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

/// The next message; `None` if the other side has closed.
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
