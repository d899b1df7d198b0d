//! The interrupts of a function of a live host, as its guest is told of them.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::pci::PciDevice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{Duration, Time};
use wire::pcie::config::header;

/// The kinds of interrupts by their numbers (VFIO).
pub const LINE: u32 = 0;
/// MSI.
pub const MSI: u32 = 1;
/// MSI-X.
pub const MSIX: u32 = 2;
/// Errors, and requests to let go: never told, but QEMU asks for them.
const NEVER_TOLD: std::ops::RangeInclusive<u32> = 3..=4;

/// How long the cause of a line may stay after the client has unmasked it, before it is told again: QEMU unmasks at any access, also at
/// one that another processor makes while the handler is at work, and a line that is told then has no cause by the time that the guest
/// looks. And how often it is looked at meanwhile.
const LEFT: Duration = Duration::from_us(500);
const LOOK: Duration = Duration::from_us(10);

/// Who keeps a legacy interrupt from being told, each a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MaskedBy {
    /// The client, until it unmasks it, and at each time that it is told.
    Client = 1,
    /// The guest, by Interrupt Disable.
    Guest = 2,
}

/// The interrupts of a function: a line that it may share, or messages.
pub struct GuestInterrupts {
    device: PciDevice,
    /// Kind and number of its messages.
    messages: (u32, u32),
    has_line: bool,
    /// The kind that is told.
    connected: Cell<Option<u32>>,
    /// Who has masked the line, as bits.
    masked_by: Rc<Cell<u8>>,
    /// Its cause was still there when the client unmasked it.
    is_again: Rc<Cell<bool>>,
    vectors: Rc<GuestVectors>,
}

/// The guest's interrupt vectors.
#[derive(Default)]
struct GuestVectors {
    /// Is told of each with its time.
    listener: RefCell<Option<Rc<InterruptListener>>>,
    /// Where each is told.
    files: RefCell<Vec<Option<File>>>,
    /// Whether one was told since somebody looked.
    raised: Cell<bool>,
}

/// Hears of interrupts: the vector, and when.
pub type InterruptListener = dyn Fn(usize, Time);

impl GuestVectors {
    /// Tells a vector's file, if it has one.
    fn raise(&self, vector: usize, at: Time) {
        if let Some(listener) = &*self.listener.borrow() {
            listener(vector, at);
        }
        if let Some(Some(mut file)) = self.files.borrow().get(vector).map(Option::as_ref) {
            // An eventfd whose count is at its end has been told often enough.
            let _ = file.write(&1u64.to_ne_bytes());
            self.raised.set(true);
        }
    }
}

/// Whether a function has a cause for its legacy interrupt.
async fn is_due(device: &PciDevice, cpu: &Cpu) -> bool {
    let word = device.config_read(cpu, header::COMMAND).await;
    word != u32::MAX && word >> 16 & u32::from(header::STATUS_INTERRUPT) != 0
}

impl GuestInterrupts {
    /// Of a function with so many messages of a kind.
    pub fn new(device: PciDevice, messages: (u32, u32), has_line: bool) -> Self {
        let (connected, masked_by, is_again, vectors) = Default::default();
        Self { device, messages, has_line, connected, masked_by, is_again, vectors }
    }

    /// Number of vectors of a kind.
    pub fn count(&self, kind: u32) -> u32 {
        match kind {
            LINE => self.has_line.into(),
            kind if NEVER_TOLD.contains(&kind) => 1,
            kind if kind == self.messages.0 => self.messages.1,
            _ => 0,
        }
    }

    /// Whether they are told to a guest.
    pub fn are_told(&self, kind: u32) -> bool {
        self.count(kind) > 0 && !NEVER_TOLD.contains(&kind)
    }

    /// Tells somebody of each.
    pub fn hear(&self, listener: Rc<InterruptListener>) {
        *self.vectors.listener.borrow_mut() = Some(listener);
    }

    /// Whether those of a kind are allocated.
    pub fn is_connected(&self, kind: u32) -> bool {
        self.connected.get() == Some(kind)
    }

    /// Notes that those of a kind are allocated.
    fn connected(&self, kind: u32) {
        self.vectors.files.borrow_mut().resize_with(self.count(kind) as usize, || None);
        self.connected.set(Some(kind));
    }

    /// Allocates all messages, and lets the line go.
    ///
    /// # Errors
    /// If the host has none left.
    pub async fn connect_messages(&self, cpu: &Cpu) -> Result<(), Error> {
        if self.is_connected(self.messages.0) {
            return Ok(());
        }
        self.disconnect(cpu).await;
        let irqs = self.device.alloc_irqs(cpu, 1, self.messages.1 as u16, Affinity::Spread).await?;
        for (vector, irq) in irqs.into_iter().enumerate() {
            let vectors = Rc::clone(&self.vectors);
            let handler = Rc::new(move |cpu: &Cpu| {
                vectors.raise(vector, cpu.now());
                IrqReturn::Handled
            });
            self.device.request_irq(irq, "guest", handler, None)?;
        }
        self.connected(self.messages.0);
        Ok(())
    }

    /// Lets messages go, and has the line, masked until the client unmasks it.
    pub async fn connect_line(&self, cpu: &Cpu) {
        if self.is_connected(LINE) {
            return;
        }
        self.disconnect(cpu).await;
        self.connected(LINE);
        self.masked_by.set(self.masked_by.get() | MaskedBy::Client as u8);
        // A host that routes none has nothing to tell.
        if self.take_line(cpu).await.is_ok() {
            self.apply_mask(cpu).await;
        }
    }

    /// Takes the line from the host. It stays active until the guest's driver has seen to its cause, so the function is masked meanwhile.
    async fn take_line(&self, cpu: &Cpu) -> Result<(), Error> {
        let irq: Irq = self.device.alloc_intx(cpu, Affinity::Spread).await?;
        let device = self.device.clone();
        let (masked_by, is_again) = (Rc::clone(&self.masked_by), Rc::clone(&self.is_again));
        let vectors = Rc::clone(&self.vectors);
        let thread = move |cpu: Cpu| -> Async<'static, ()> {
            let (device, masked_by, vectors) = (device.clone(), Rc::clone(&masked_by), Rc::clone(&vectors));
            let until = cpu.now() + if is_again.take() { LEFT } else { Duration::ZERO };
            Box::pin(async move {
                while cpu.now() < until && is_due(&device, &cpu).await {
                    cpu.sleep(LOOK).await;
                }
                // Another function may have the same line. Who was told already is not told again, but one that should be masked is
                // masked again, or it would keep the core busy.
                if device.set_intx_masked_if_due(&cpu, true).await && masked_by.get() == 0 {
                    masked_by.set(MaskedBy::Client as u8);
                    vectors.raise(0, cpu.now());
                }
            })
        };
        self.device.request_irq(irq, "guest", Rc::new(|_| IrqReturn::WakeThread), Some(Rc::new(thread)))
    }

    /// Masks or unmasks the line.
    pub async fn mask(&self, cpu: &Cpu, by: MaskedBy, masked: bool) {
        let bit = by as u8;
        let was = self.masked_by.get();
        self.masked_by.set(if masked { was | bit } else { was & !bit });
        self.apply_mask(cpu).await;
    }

    /// The guest's mask is as after a reset, which [`apply_mask`](Self::apply_mask) follows.
    pub fn forget_guest(&self) {
        self.masked_by.set(self.masked_by.get() & !(MaskedBy::Guest as u8));
    }

    /// The function's own bit, as it should be: the host sets and clears it when it connects and resets.
    pub async fn apply_mask(&self, cpu: &Cpu) {
        if !self.is_connected(LINE) || !self.device.is_present() {
            return;
        }
        let masks = self.masked_by.get() != 0;
        self.is_again.set(!masks && is_due(&self.device, cpu).await);
        let word = self.device.config_read(cpu, header::COMMAND).await;
        let disable = u32::from(header::COMMAND_INTX_DISABLE);
        let command = if masks { word | disable } else { word & !disable };
        self.device.config_write(cpu, header::COMMAND, command, 2).await;
    }

    /// Lets all go.
    pub async fn disconnect(&self, cpu: &Cpu) {
        self.vectors.files.borrow_mut().clear();
        if self.connected.take().is_some() {
            self.device.free_irqs(cpu).await;
        }
    }

    /// Files for the vectors from one on.
    pub fn tell_files(&self, start: u32, files: Vec<Option<File>>) {
        let mut own = self.vectors.files.borrow_mut();
        own.iter_mut().skip(start as usize).zip(files).for_each(|(own, file)| *own = file);
    }

    /// Tells vectors of a kind as if the function had raised them.
    pub fn raise(&self, kind: u32, vectors: std::ops::Range<u32>, at: Time) {
        if self.is_connected(kind) {
            vectors.for_each(|vector| self.vectors.raise(vector as usize, at));
        }
    }

    /// Whether some were told since the last call.
    pub fn has_raised(&self) -> bool {
        self.vectors.raised.take()
    }

    /// Whether the client has seen all that it was told.
    pub fn are_seen(&self) -> bool {
        // An eventfd can be read until its count has been taken.
        let files = self.vectors.files.borrow();
        let mut fds: Vec<PollFd<'_>> =
            files.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN)).collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut fds, Some(&at_once)), Ok(1..))
    }
}
