//! memcached's protocol over a stream: lines, and data whose length a line announces.

use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::socket::TcpStream;

use super::LINE;

/// One end of a connection, with the received data that have not been consumed.
pub struct Wire {
    kernel: Rc<dyn Kernel>,
    stream: Rc<dyn TcpStream>,
    pages: Pages,
    /// Start and end of those data in the page.
    begin: u32,
    end: u32,
}

impl Wire {
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>, stream: Rc<dyn TcpStream>) -> Result<Self, Error> {
        let pages = kernel.alloc_pages(cpu, 0, Policy::Task)?;
        Ok(Self { kernel: Rc::clone(kernel), stream, pages, begin: 0, end: 0 })
    }

    /// The next line without its terminator; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the connection fails, or [`Error::Invalid`] if the line is too long.
    pub async fn line(&mut self, cpu: &Cpu) -> Result<Option<String>, Error> {
        loop {
            let mut bytes = vec![0; (self.end - self.begin).min(LINE) as usize];
            cpu.load(self.pages.start + u64::from(self.begin), &mut bytes);
            if let Some(length) = bytes.windows(2).position(|pair| pair == b"\r\n") {
                self.begin += length as u32 + 2;
                bytes.truncate(length);
                return String::from_utf8(bytes).map(Some).map_err(|_| Error::Invalid);
            }
            if self.end - self.begin >= LINE {
                return Err(Error::Invalid);
            }
            if u64::from(self.begin) + u64::from(2 * LINE) > PAGE {
                // A partial line moves to the start of the page.
                cpu.store(self.pages.start, &bytes);
                (self.begin, self.end) = (0, bytes.len() as u32);
            }
            let room = PAGE as u32 - self.end;
            let into = Segment { at: self.pages.start + u64::from(self.end), length: room };
            match self.stream.recv(cpu, into).await? {
                0 => return Ok(None),
                taken => self.end += taken,
            }
        }
    }

    /// Reads the next `length` bytes into memory; returns false at the end of the stream.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn data(&mut self, cpu: &Cpu, into: PhysAddr, length: u32) -> Result<bool, Error> {
        let here = length.min(self.end - self.begin);
        if here > 0 {
            cpu.copy(into, self.pages.start + u64::from(self.begin), here.into());
            self.begin += here;
        }
        let mut done = here;
        while done < length {
            let room = Segment { at: into + u64::from(done), length: length - done };
            match self.stream.recv(cpu, room).await? {
                0 => return Ok(false),
                taken => done += taken,
            }
        }
        Ok(true)
    }

    /// Sends data from memory.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn send(&self, cpu: &Cpu, at: PhysAddr, length: u32) -> Result<(), Error> {
        self.stream.send(cpu, Segment { at, length }).await
    }

    /// Sends a short text.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn say(&self, cpu: &Cpu, text: &str) -> Result<(), Error> {
        let at = self.pages.start + (PAGE - u64::from(LINE));
        cpu.store(at, text.as_bytes());
        self.send(cpu, at, text.len() as u32).await
    }

    /// Closes the connection.
    pub fn close(self, cpu: &Cpu) {
        self.stream.close(cpu);
        self.kernel.free_pages(cpu, self.pages);
    }
}
