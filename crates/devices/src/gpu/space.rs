//! What engines and programs reach: the GPU's memory, and host memory through windows of contexts.

use std::cell::RefCell;

use platform::device::{Dma, DmaAttributes, FunctionIndex, Token};
use units::{Duration, Iova};
use wire::gpu::{self as regs, Fault, Place, WindowKind};

use super::copy::Side;
use super::memory::GpuMemory;
use crate::firmware::Port;

/// A window of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub kind: WindowKind,
    pub base: u64,
    pub length: u64,
}

impl Window {
    pub const NONE: Self = Self { kind: WindowKind::None, base: 0, length: 0 };

    /// Where a range of the window is.
    fn resolve(&self, offset: u64, bytes: u64) -> Option<Side> {
        let end = offset.checked_add(bytes)?;
        let at = self.base.checked_add(offset).filter(|_| end <= self.length)?;
        match self.kind {
            WindowKind::None => None,
            WindowKind::Local => Some(Side::Local(at)),
            WindowKind::Bus => Some(Side::Bus(at)),
        }
    }
}

fn dma(address: u64, length: u32) -> Dma {
    Dma {
        function: FunctionIndex(0),
        address: Iova::new(address),
        length,
        token: Token(0),
        attributes: DmaAttributes::default(),
    }
}

/// The GPU's memory, and the bus.
pub(super) struct Space {
    port: Port,
    /// Size of the memory.
    bytes: u64,
    memory: RefCell<GpuMemory>,
    windows: RefCell<Vec<Window>>,
}

impl Space {
    pub fn new(port: Port, bytes: u64) -> Self {
        let windows = usize::from(regs::CONTEXTS) * usize::from(regs::WINDOWS);
        Self {
            port,
            bytes,
            memory: RefCell::new(GpuMemory::new(bytes)),
            windows: RefCell::new(vec![Window::NONE; windows]),
        }
    }

    /// Clears the memory and the windows.
    pub fn reset(&self) {
        self.memory.borrow_mut().clear();
        self.windows.borrow_mut().fill(Window::NONE);
    }

    pub fn memory(&self) -> &RefCell<GpuMemory> {
        &self.memory
    }

    pub fn set_window(&self, context: u32, number: u32, window: Window) {
        let index = context as usize * usize::from(regs::WINDOWS) + number as usize;
        if let Some(place) =
            self.windows.borrow_mut().get_mut(index).filter(|_| number < regs::WINDOWS.into())
        {
            *place = window;
        }
    }

    pub async fn pause(&self, time: Duration) {
        self.port.sleep_until(self.port.now() + time).await;
    }

    /// Resolves a range of a context's window.
    pub fn resolve(&self, context: u16, place: Place, bytes: u64) -> Result<Side, Fault> {
        let index = usize::from(context) * usize::from(regs::WINDOWS) + usize::from(place.window);
        let window = (place.window < regs::WINDOWS).then(|| self.windows.borrow().get(index).copied());
        let window = window.flatten().ok_or(Fault::Address)?;
        let side = window.resolve(place.offset, bytes).ok_or(Fault::Address)?;
        match side {
            Side::Local(at) if at + bytes > self.bytes => Err(Fault::Address),
            side => Ok(side),
        }
    }

    /// Reads eight bytes.
    pub async fn load(&self, from: Side) -> Result<u64, Fault> {
        match from {
            Side::Local(at) => Ok(self.memory.borrow().read_u64(at)),
            Side::Bus(at) => {
                let bytes = self.read(at, 8).await?;
                let word = bytes.first_chunk().ok_or(Fault::Bus)?;
                Ok(u64::from_le_bytes(*word))
            }
        }
    }

    pub async fn read(&self, at: u64, bytes: u32) -> Result<Vec<u8>, Fault> {
        let outcome = self.port.read(dma(at, bytes)).await;
        outcome.ok().and_then(Result::ok).ok_or(Fault::Bus)
    }

    /// Posts a write.
    pub fn store(&self, to: Side, bytes: &[u8]) {
        match to {
            Side::Local(at) => self.memory.borrow_mut().write(at, bytes),
            Side::Bus(at) => drop(self.port.write(dma(at, bytes.len() as u32), bytes)),
        }
    }
}
