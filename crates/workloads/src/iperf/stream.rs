//! Streams of TCP and UDP: sending, receiving, and what is counted.

use std::net::SocketAddrV4;

use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::memory::Pages;
use platform::socket::{BufferSizes, TcpStream, UdpSocket};
use units::{Duration, Time};

use crate::options::{check_length, duration};
use crate::premises::Refused;
use crate::program::Report;

/// Bytes of a datagram's header: number and time of sending.
pub const HEADER: u32 = 16;
/// Marks the number of the last datagram of version 2.
const LAST: u64 = 1 << 63;
/// Most intervals of a test that are told apart.
pub const INTERVALS: u64 = 10_000;

/// When sending ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StreamExtent {
    Time(Duration),
    Bytes(u64),
    /// Calls, each of the length of the buffer.
    Blocks(u64),
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamSettings {
    pub udp: bool,
    /// Bytes per send or receive.
    pub length: u32,
    /// Bytes of the socket buffers, if set.
    pub window: Option<u32>,
    pub extent: StreamExtent,
    /// Bits per second; 0 for no limit.
    pub rate: u64,
    /// Sends small segments at once.
    pub no_delay: bool,
    /// Time between interim results.
    pub interval: Option<Duration>,
    /// Time at the start that does not count.
    pub omit: Duration,
}

impl StreamSettings {
    pub fn buffers(&self) -> Option<BufferSizes> {
        self.window.map(|size| BufferSizes { send: Some(size), receive: Some(size) })
    }

    pub fn prepare(&self, stream: &dyn TcpStream) {
        if let Some(sizes) = self.buffers() {
            stream.set_buffers(sizes);
        }
        stream.set_no_delay(self.no_delay);
    }

    fn end(&self, began: Time) -> Time {
        self.lasts().map_or(Time::NEVER, |time| began + time)
    }

    /// Checks that sending at the rate does not take too long.
    ///
    /// # Errors
    /// If it does.
    pub fn check(&self, program: &str) -> Result<(), Refused> {
        let (count, bytes) = match self.extent {
            StreamExtent::Bytes(bytes) => (bytes.div_ceil(self.length.into()), self.length),
            StreamExtent::Blocks(blocks) => (blocks, self.length),
            StreamExtent::Time(_) => return Ok(()),
        };
        if self.rate == 0 { Ok(()) } else { check_length(program, count, time_of(bytes.into(), self.rate)) }
    }

    /// Whether so many streams have kept to the rate, with so many Mbit/s together.
    pub fn set_pace(&self, report: &mut Report, streams: usize, reached: f64) {
        if self.rate > 0 {
            report.set_pace("-b", self.rate as f64 * streams as f64 / 1e6, reached);
        }
    }

    /// The time that sending takes, if it is known.
    pub fn lasts(&self) -> Option<Duration> {
        match self.extent {
            StreamExtent::Time(time) => Some(time + self.omit),
            StreamExtent::Bytes(_) | StreamExtent::Blocks(_) => None,
        }
    }
}

/// What a stream did.
#[derive(Clone, Default, Debug)]
pub struct StreamTally {
    pub bytes: u64,
    pub datagrams: u64,
    /// Segments sent again.
    pub again: u64,
    /// Datagrams that did not come, and those that came too late.
    pub lost: u64,
    pub late: u64,
    /// Smoothed variation of the time on the way (RFC 3550, 6.4.1).
    pub jitter: Duration,
    /// From the first to the last counted byte.
    pub took: Duration,
    /// Bytes of each interval.
    pub intervals: Vec<u64>,
    /// Congestion window in bytes and round trip at the end.
    pub window: u64,
    pub round_trip: Duration,
    pub(super) next: u64,
    pub(super) transit: Option<Duration>,
}

impl StreamTally {
    /// Counts bytes at a time after the start; not those of the time that is omitted.
    fn count(&mut self, settings: &StreamSettings, since: Duration, bytes: u64) {
        let Some(at) = since.as_ps().checked_sub(settings.omit.as_ps()) else { return };
        self.bytes += bytes;
        self.datagrams += u64::from(settings.udp);
        self.took = Duration::from_ps(at);
        if let Some(interval) = settings.interval {
            let place = (at / interval.as_ps().max(1)).min(INTERVALS) as usize;
            if self.intervals.len() <= place {
                self.intervals.resize(place + 1, 0);
            }
            self.intervals[place] += bytes;
        }
    }

    /// Sending ends at a time after the start, later than the last call if it waits between calls.
    fn end(&mut self, settings: &StreamSettings, since: Duration) {
        let since = Duration::from_ps(since.as_ps().saturating_sub(settings.omit.as_ps()));
        self.took = self.took.max(since);
    }

    /// Takes a datagram's number and the time that it was on the way. Both hosts have the same clock.
    fn arrived(&mut self, number: u64, transit: Duration) {
        if number >= self.next {
            self.lost += number - self.next;
            self.next = number + 1;
        } else {
            self.late += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.as_ps().abs_diff(before.as_ps()) as i64;
            let jitter = self.jitter.as_ps() as i64;
            self.jitter = Duration::from_ps((jitter + (change - jitter) / 16) as u64);
        }
    }
}

/// Streams with what their receivers saw, as far as that is known, and the intervals of their senders.
pub fn seen(sent: &[StreamTally], received: &[StreamTally]) -> Vec<StreamTally> {
    if sent.len() != received.len() {
        return sent.to_vec();
    }
    let one = |(sent, received): (&StreamTally, &StreamTally)| StreamTally {
        intervals: sent.intervals.clone(),
        took: sent.took,
        ..received.clone()
    };
    sent.iter().zip(received).map(one).collect()
}

/// Waits for its time at a rate, and not beyond the end.
struct SendPace {
    next: Time,
    rate: u64,
    end: Time,
}

impl SendPace {
    async fn wait(&mut self, cpu: &Cpu, bytes: u32) {
        if self.rate == 0 {
            return;
        }
        self.next = (self.next + time_of(bytes.into(), self.rate)).min(self.end);
        if self.next > cpu.now() {
            cpu.sleep_until(self.next).await;
        }
    }
}

/// The time of some bytes at a rate, a day at most.
fn time_of(bytes: u64, rate: u64) -> Duration {
    duration(bytes as f64 * 8.0 / rate as f64)
}

/// Whether sending goes on.
fn goes_on(cpu: &Cpu, settings: &StreamSettings, began: Time, done: (u64, u64)) -> bool {
    match settings.extent {
        StreamExtent::Time(time) => cpu.now() < began + settings.omit + time,
        StreamExtent::Bytes(bytes) => done.0 < bytes,
        StreamExtent::Blocks(blocks) => done.1 < blocks,
    }
}

/// Sends a stream, and ends it.
///
/// # Errors
/// If the connection fails.
pub async fn send(
    cpu: &Cpu,
    stream: &dyn TcpStream,
    settings: &StreamSettings,
    pages: Pages,
) -> Result<StreamTally, Error> {
    let (began, mut tally) = (cpu.now(), StreamTally::default());
    let mut pace = SendPace { next: began, rate: settings.rate, end: settings.end(began) };
    let mut done = (0, 0);
    while goes_on(cpu, settings, began, done) {
        stream.send(cpu, Segment { at: pages.start, length: settings.length }).await?;
        done = (done.0 + u64::from(settings.length), done.1 + 1);
        tally.count(settings, cpu.now().since(began), settings.length.into());
        pace.wait(cpu, settings.length).await;
    }
    tally.end(settings, cpu.now().since(began));
    stream.shutdown(cpu);
    Ok(tally)
}

/// What a connection counted.
pub fn noted(mut tally: StreamTally, stream: &dyn TcpStream) -> StreamTally {
    let info = stream.info();
    tally.again = info.retransmissions;
    (tally.window, tally.round_trip) = (info.congestion_window, info.round_trip.unwrap_or_default());
    tally
}

/// Receives a stream to its end.
///
/// # Errors
/// If the connection fails.
pub async fn receive(
    cpu: &Cpu,
    stream: &dyn TcpStream,
    settings: &StreamSettings,
    pages: Pages,
) -> Result<StreamTally, Error> {
    let (began, mut tally) = (cpu.now(), StreamTally::default());
    loop {
        match stream.recv(cpu, Segment { at: pages.start, length: settings.length }).await? {
            0 => return Ok(noted(tally, stream)),
            taken => tally.count(settings, cpu.now().since(began), taken.into()),
        }
    }
}

/// Writes a datagram's header.
fn write_header(cpu: &Cpu, pages: Pages, number: u64) {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(&number.to_be_bytes());
    header[8..].copy_from_slice(&cpu.now().as_ps().to_be_bytes());
    cpu.store(pages.start, &header);
}

fn words<const N: usize>(cpu: &Cpu, pages: Pages) -> [u64; N] {
    core::array::from_fn(|n| {
        let mut word = [0; 8];
        cpu.load(pages.start + 8 * n as u64, &mut word);
        u64::from_be_bytes(word)
    })
}

/// Sends datagrams.
///
/// # Errors
/// If the host is unreachable.
pub async fn send_datagrams(
    cpu: &Cpu,
    socket: &dyn UdpSocket,
    to: SocketAddrV4,
    settings: &StreamSettings,
    pages: Pages,
) -> Result<StreamTally, Error> {
    let (began, mut tally) = (cpu.now(), StreamTally::default());
    let mut pace = SendPace { next: began, rate: settings.rate, end: settings.end(began) };
    let mut done = (0, 0);
    while goes_on(cpu, settings, began, done) {
        write_header(cpu, pages, done.1);
        socket.send_to(cpu, to, Segment { at: pages.start, length: settings.length }).await?;
        done = (done.0 + u64::from(settings.length), done.1 + 1);
        tally.count(settings, cpu.now().since(began), settings.length.into());
        cpu.sync().await;
        pace.wait(cpu, settings.length).await;
    }
    tally.end(settings, cpu.now().since(began));
    tally.next = done.1;
    Ok(tally)
}

/// A received datagram.
pub enum DatagramKind {
    Data,
    /// The last one of version 2, which asks for a report.
    Last,
}

/// Takes a datagram of `bytes` in `pages` into account.
pub fn take_datagram(
    cpu: &Cpu,
    settings: &StreamSettings,
    tally: &mut StreamTally,
    (began, pages, bytes): (Time, Pages, u32),
) -> DatagramKind {
    if bytes < HEADER {
        return DatagramKind::Data;
    }
    let [number, sent] = words(cpu, pages);
    if number & LAST != 0 {
        return DatagramKind::Last;
    }
    tally.arrived(number, Duration::from_ps(cpu.now().as_ps().saturating_sub(sent)));
    tally.count(settings, cpu.now().since(began), bytes.into());
    DatagramKind::Data
}

/// Bytes of version 2's report.
const REPORT: u32 = 64;

/// Version 2: answers the last datagram with a report.
///
/// # Errors
/// If the host is unreachable.
pub async fn send_report(
    cpu: &Cpu,
    socket: &dyn UdpSocket,
    to: SocketAddrV4,
    tally: &StreamTally,
    pages: Pages,
) -> Result<(), Error> {
    let report = [
        tally.bytes,
        tally.datagrams,
        tally.lost,
        tally.late,
        tally.jitter.as_ps(),
        tally.took.as_ps(),
        0,
        0,
    ];
    for (n, word) in (0..).zip(report) {
        cpu.store(pages.start + 8 * n, &word.to_be_bytes());
    }
    socket.send_to(cpu, to, Segment { at: pages.start, length: REPORT }).await
}

/// Version 2: ends a stream of datagrams, and takes the server's report. The last datagram is repeated until then, at
/// most ten times; `None` if no report comes.
///
/// # Errors
/// If the host is unreachable.
pub async fn end_datagrams(
    cpu: &Cpu,
    socket: &dyn UdpSocket,
    to: SocketAddrV4,
    length: u32,
    (sent, pages): (&StreamTally, Pages),
) -> Result<Option<StreamTally>, Error> {
    for _ in 0..TRIES {
        write_header(cpu, pages, sent.next | LAST);
        socket.send_to(cpu, to, Segment { at: pages.start, length }).await?;
        cpu.sync().await;
        let until = cpu.now() + AGAIN;
        while cpu.now() < until {
            match socket.try_recv_from(cpu, Segment { at: pages.start, length: REPORT }) {
                Ok(_) => {
                    let [bytes, datagrams, lost, late, jitter, took] = words(cpu, pages);
                    // What was sent last may be lost as well.
                    let lost = lost + sent.next.saturating_sub(datagrams + lost);
                    let (jitter, took) = (Duration::from_ps(jitter), Duration::from_ps(took));
                    return Ok(Some(StreamTally {
                        bytes,
                        datagrams,
                        lost,
                        late,
                        jitter,
                        took,
                        ..StreamTally::default()
                    }));
                }
                Err(Error::WouldBlock) => cpu.sleep(AGAIN / 50).await,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// How often the last datagram is sent, and the time between (the original's is 250 ms, long for a simulation).
const TRIES: u32 = 10;
const AGAIN: Duration = Duration::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_are_missing_or_late_are_counted() {
        let mut tally = StreamTally::default();
        for (number, us) in [(0, 10), (1, 10), (4, 26), (2, 26), (5, 26)] {
            tally.arrived(number, Duration::from_us(us));
        }
        assert_eq!((tally.lost, tally.late, tally.next), (1, 1, 6));
        // One change by 16 us adds 1 us, which decays by a sixteenth at each of two datagrams.
        assert_eq!(tally.jitter.as_ps(), 1_000_000 * 15 / 16 * 15 / 16 + 1);
    }
}
