//! Addresses of functions: BARs, and what bridges forward.

use std::cell::{Cell, RefCell};

use platform::cpu::Cpu;
use wire::pcie::config::Bar;

use super::backend::Backend;

/// Base address registers: a function's own, or those of its virtual functions.
pub(super) struct BaseAddresses {
    /// Register of the first one.
    at: u16,
    /// By number. One of 64 bits takes two numbers.
    known: RefCell<[Option<Bar>; 6]>,
}

impl BaseAddresses {
    pub fn new(at: u16, known: [Option<Bar>; 6]) -> Self {
        Self { at, known: RefCell::new(known) }
    }

    pub fn get(&self, number: u8) -> Option<Bar> {
        *self.known.borrow().get(usize::from(number))?
    }

    pub fn all(&self) -> [Option<Bar>; 6] {
        *self.known.borrow()
    }

    /// Those that there are, with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u8, Bar)> + use<> {
        (0..).zip(self.all()).filter_map(|(number, bar)| Some((number, bar?)))
    }

    /// Writes a BAR's address to its register, or registers if it has 64 bits.
    pub async fn set(&self, cpu: &Cpu, way: &dyn Backend, number: u8, address: u64) {
        let mut wide = false;
        if let Some(bar) = &mut self.known.borrow_mut()[usize::from(number)] {
            bar.address = address;
            wide = bar.kind.is_64();
        }
        let at = self.at + 4 * u16::from(number);
        way.config_write(cpu, at, address as u32, 0xf).await;
        if wide {
            way.config_write(cpu, at + 4, (address >> 32) as u32, 0xf).await;
        }
    }

    /// Notes another size of a BAR, whose address is to be set anew.
    pub fn resize(&self, number: u8, size: u64) {
        if let Some(bar) = &mut self.known.borrow_mut()[usize::from(number)] {
            bar.size = size;
        }
    }

    /// Gives up BARs for which there are no addresses.
    pub fn give_up(&self, lacks: impl Fn(u8, &Bar) -> bool) {
        for (number, bar) in (0..).zip(self.known.borrow_mut().iter_mut()) {
            bar.take_if(|bar| lacks(number, bar));
        }
    }
}

/// What a bridge forwards downwards; nothing if the function is none.
#[derive(Default)]
pub(super) struct Forwards {
    secondary: Cell<u8>,
    subordinate: Cell<u8>,
    /// Start and length, by window.
    windows: Cell<[Option<(u64, u64)>; 2]>,
}

impl Forwards {
    /// The bus below it.
    pub fn secondary(&self) -> u8 {
        self.secondary.get()
    }

    /// The last bus behind it.
    pub fn subordinate(&self) -> u8 {
        self.subordinate.get()
    }

    pub fn windows(&self) -> [Option<(u64, u64)>; 2] {
        self.windows.get()
    }

    /// Notes the bus below it.
    pub fn begin_at(&self, secondary: u8) {
        self.secondary.set(secondary);
    }

    /// Notes the last bus behind it.
    pub fn end_at(&self, subordinate: u8) {
        self.subordinate.set(subordinate);
    }

    /// Notes the range of a window; none with length 0.
    pub fn set_window(&self, window: usize, start: u64, length: u64) {
        let mut windows = self.windows.get();
        windows[window] = (length > 0).then_some((start, length));
        self.windows.set(windows);
    }
}
