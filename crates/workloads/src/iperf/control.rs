//! Messages of version 3 between client and server, of eight words each.

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Cpu, CpuId};
use platform::memory::Pages;
use platform::socket::TcpStream;
use units::Duration;

use super::stream::{INTERVALS, StreamExtent, StreamSettings, StreamTally};

/// Words per message.
const WORDS: usize = 8;
/// A message.
pub type ControlWords = [u64; WORDS];

/// First words.
const ORDER: u64 = 1;
const DATA: u64 = 2;

/// A test as a client orders it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Iperf3Order {
    pub settings: StreamSettings,
    pub parallel: u16,
    /// The server sends.
    pub reverse: bool,
    /// The server's core, if it is to be one.
    pub core: Option<CpuId>,
}

impl Iperf3Order {
    pub fn message(&self) -> ControlWords {
        let settings = &self.settings;
        let flag = |is_set: bool, bit: u32| u64::from(is_set) << bit;
        let flags = flag(settings.udp, 16) | flag(self.reverse, 17) | flag(settings.no_delay, 18);
        let core = self.core.map_or(0, |core| u64::from(core.0) + 1);
        let (kind, extent) = match settings.extent {
            StreamExtent::Time(time) => (0, time.as_ps()),
            StreamExtent::Bytes(bytes) => (1, bytes),
            StreamExtent::Blocks(blocks) => (2, blocks),
        };
        [
            ORDER | flags | core << 32,
            u64::from(settings.length) | u64::from(self.parallel) << 32 | kind << 48,
            settings.window.unwrap_or(0).into(),
            extent,
            settings.rate,
            settings.interval.unwrap_or_default().as_ps(),
            settings.omit.as_ps(),
            0,
        ]
    }

    /// `None` if it is another message.
    pub fn of(message: ControlWords) -> Option<Self> {
        let [first, sizes, window, extent, rate, interval, omit, _] = message;
        let extent = match sizes >> 48 {
            0 => StreamExtent::Time(Duration::from_ps(extent)),
            1 => StreamExtent::Bytes(extent),
            2 => StreamExtent::Blocks(extent),
            _ => return None,
        };
        let is_set = |bit: u32| first >> bit & 1 != 0;
        let settings = StreamSettings {
            udp: is_set(16),
            length: sizes as u32,
            window: Some(window as u32).filter(|size| *size > 0),
            extent,
            rate,
            no_delay: is_set(18),
            interval: Some(Duration::from_ps(interval)).filter(|time| !time.is_zero()),
            omit: Duration::from_ps(omit),
        };
        let core = (first >> 32).checked_sub(1).map(|core| CpuId(core as u16));
        let parallel = (sizes >> 32) as u16;
        let is_order = first as u16 == ORDER as u16 && (1..=1 << 22).contains(&settings.length);
        is_order.then_some(Self { settings, parallel, reverse: is_set(17), core })
    }
}

/// First message of a data connection: the port of the client's control connection.
pub fn data(control: u16) -> ControlWords {
    [DATA, control.into(), 0, 0, 0, 0, 0, 0]
}

/// A stream's result, without its intervals.
pub fn result(tally: &StreamTally) -> ControlWords {
    let (jitter, took) = (tally.jitter.as_ps(), tally.took.as_ps());
    let intervals = (tally.intervals.len() as u64).min(INTERVALS);
    [tally.bytes, tally.datagrams, tally.again, tally.lost, tally.late, jitter, took, intervals]
}

/// A stream's result.
pub fn tally(message: ControlWords) -> StreamTally {
    let [bytes, datagrams, again, lost, late, jitter, took, _] = message;
    let (jitter, took) = (Duration::from_ps(jitter), Duration::from_ps(took));
    StreamTally { bytes, datagrams, again, lost, late, jitter, took, ..StreamTally::default() }
}

/// Sends a message.
///
/// # Errors
/// If the connection fails.
pub async fn send(
    cpu: &Cpu,
    stream: &dyn TcpStream,
    pages: Pages,
    message: ControlWords,
) -> Result<(), Error> {
    for (n, word) in (0..).zip(message) {
        cpu.store(pages.start + 8 * n, &word.to_be_bytes());
    }
    stream.send(cpu, Segment { at: pages.start, length: 8 * WORDS as u32 }).await
}

/// Receives a message.
///
/// # Errors
/// If the connection fails; [`Error::Ended`] if it has ended.
pub async fn receive(cpu: &Cpu, stream: &dyn TcpStream, pages: Pages) -> Result<ControlWords, Error> {
    let bytes = 8 * WORDS as u32;
    let mut done = 0;
    while done < bytes {
        let room = Segment { at: pages.start + u64::from(done), length: bytes - done };
        match stream.recv(cpu, room).await? {
            0 => return Err(Error::Ended),
            taken => done += taken,
        }
    }
    Ok(core::array::from_fn(|n| {
        let mut word = [0; 8];
        cpu.load(pages.start + 8 * n as u64, &mut word);
        u64::from_be_bytes(word)
    }))
}
