//! Captures of a port's traffic.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::rc::Rc;

use units::{BitRate, Time};
use wire::pcap::{Contents, Direction, InterfaceId, PcapngWriter};

/// A frame to be recorded later, since cables are reserved ahead of the clock.
type WaitingFrame = Reverse<(Time, u64, u32, bool, Vec<u8>)>;

/// A capture file of one or more ports, in time order.
pub struct Capture {
    writer: PcapngWriter<Box<dyn Write>>,
    interfaces: Vec<InterfaceId>,
    waiting: BinaryHeap<WaitingFrame>,
    recorded: u64,
    failed: Option<io::Error>,
}

impl Capture {
    /// Starts a capture with a comment that describes it.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(out: Box<dyn Write>, comment: &str) -> io::Result<Self> {
        Ok(Self {
            writer: PcapngWriter::new(out, comment)?,
            interfaces: Vec::new(),
            waiting: BinaryHeap::new(),
            recorded: 0,
            failed: None,
        })
    }

    fn interface(&mut self, name: &str, rate: BitRate) -> u32 {
        match self.writer.interface(name, rate.bits_per_s(), Contents::Ethernet) {
            Ok(id) => self.interfaces.push(id),
            Err(error) => self.failed = Some(error),
        }
        self.interfaces.len().saturating_sub(1) as u32
    }

    fn write_until(&mut self, now: Time) {
        while self.failed.is_none() && self.waiting.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((at, _, interface, is_in, bytes))) = self.waiting.pop() else { return };
            let direction = if is_in { Direction::In } else { Direction::Out };
            let Some(&interface) = self.interfaces.get(interface as usize) else { return };
            self.failed = self.writer.packet(interface, at, direction, &bytes).err();
        }
    }

    /// Writes the remaining frames, and all to the file.
    ///
    /// # Errors
    /// If any write has failed since the capture began.
    pub fn finish(&mut self) -> io::Result<u64> {
        self.write_until(Time::NEVER);
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.flush().map(|()| self.recorded),
        }
    }
}

/// Records a port's frames.
pub struct CaptureTap {
    interface: u32,
    into: Rc<RefCell<Capture>>,
}

impl CaptureTap {
    pub fn new(name: &str, rate: BitRate, into: Rc<RefCell<Capture>>) -> Self {
        let interface = into.borrow_mut().interface(name, rate);
        Self { interface, into }
    }

    /// Records a frame whose last bit passes at `at`. No later call records a frame earlier than `past` (frames in a
    /// receive pipeline may be slightly in the past).
    pub fn record(&self, past: Time, at: Time, direction: Direction, bytes: &[u8]) {
        let mut capture = self.into.borrow_mut();
        capture.recorded += 1;
        let number = capture.recorded;
        capture.waiting.push(Reverse((
            at,
            number,
            self.interface,
            direction == Direction::In,
            bytes.to_vec(),
        )));
        // By then no port of the capture can still record an earlier frame.
        if capture.waiting.len() > 1024 {
            capture.write_until(past - (past - Time::ZERO).min(LONGEST_PIPELINE));
        }
    }
}

/// Longer than any receive pipeline.
const LONGEST_PIPELINE: units::Duration = units::Duration::from_us(100);
