//! A queue's window: frames become lines at its positions.

use std::cell::{Cell, RefCell};

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use wire::kpio::{Format, LINE, framed, signature};

use super::params::{Ending, KpioParams, Stores};
use crate::nic::limits::Windows;

/// The window of a queue.
pub struct Lines {
    window: Mmio,
    /// Number of the queue, whose window follows those of others.
    number: u16,
    windows: Windows,
    params: KpioParams,
    format: Format,
    /// Sequence number of the next frame.
    next: Cell<u16>,
    /// Lines of one frame.
    encoded: RefCell<Vec<u8>>,
}

impl Lines {
    pub fn new(window: &Mmio, number: u16, windows: Windows, params: KpioParams) -> Self {
        Self {
            window: window.clone(),
            number,
            windows,
            params,
            format: if params.framed { Format::Framed } else { Format::Signature(signature::EOP) },
            next: Cell::new(0),
            encoded: RefCell::default(),
        }
    }

    /// Whether the last line of a frame is not filled.
    pub fn are_short(&self) -> bool {
        let no_filling = self.params.stores == Stores::Uncached || self.params.ending == Ending::Fenced;
        self.params.framed && no_filling
    }

    /// Lines that the device holds at most.
    pub fn depth(&self) -> u32 {
        1 << self.windows.log2_lines
    }

    /// Longest frame (bytes) that fits.
    pub fn longest(&self) -> u32 {
        ((self.depth() as usize - 1) * LINE).min(framed::LONGEST) as u32
    }

    /// The count of lines behind a frame of `length` bytes, whose first line is at `line`.
    pub fn behind(&self, line: u32, length: usize) -> u32 {
        line.wrapping_add(self.format.lines(length) as u32)
    }

    /// Writes a frame at a count of lines. The pair says which checksums the device fills in.
    pub fn write(&self, cpu: &Cpu, line: u32, frame: &[u8], (network, transport): (bool, bool)) {
        let number = self.next.replace(self.next.get().wrapping_add(1));
        let header = framed::Header {
            length: frame.len() as u16,
            number,
            network_checksum: network,
            transport_checksum: transport,
        };
        let mut lines = self.encoded.borrow_mut();
        lines.clear();
        self.format.encode(header, frame, &mut lines);
        let used = if self.are_short() { frame.len() + framed::OVERHEAD } else { lines.len() };
        let positions = 1u64 << self.windows.log2_positions;
        let window = u64::from(self.number) * 2 * positions;
        let mask = if self.params.framed { positions } else { self.depth().into() } - 1;
        for (n, bytes) in lines[..used].chunks(LINE).enumerate() {
            let position = u64::from(line.wrapping_add(n as u32)) & mask;
            let half = if n == 0 && self.params.framed { positions } else { 0 };
            let at = (window + half + position) * LINE as u64;
            match (self.params.stores, bytes.first_chunk::<LINE>()) {
                (Stores::Direct, Some(bytes)) => self.window.write_direct(cpu, at, bytes),
                (Stores::Uncached, _) => self.window.write(cpu, at, bytes),
                _ => self.window.stream(cpu, at, bytes),
            }
            if self.params.fence_every > 0 && (n + 1) % usize::from(self.params.fence_every) == 0 {
                cpu.sfence();
            }
        }
        // A partly filled last line goes through a combining buffer, even after direct stores.
        if self.params.ending == Ending::Fenced && self.params.stores != Stores::Uncached {
            cpu.sfence();
        }
    }
}
