//! Firmware as tasks: straight-line programs behind the callbacks of a [`Device`](platform::device::Device).
//!
//! The tasks see a [`Port`]: DMA, interrupts, sleep. The device hands what happens to its [`Firmware`] and then
//! lets it [run](Firmware::run), which passes on what the tasks asked for. Its clock is the bus's.

use core::future::Future;
use engine::{Completer, Completion, Handle, JoinHandle, Scheduler, Simulation, World, oneshot};
use platform::device::{DeviceBus, Dma, DmaError, FunctionIndex, Token};
use units::Time;

/// Outcome of a DMA read.
pub type ReadOutcome = Result<Vec<u8>, DmaError>;

/// Requests that tasks made and the device has not passed on.
enum Request {
    Read(Dma),
    Write(Dma, core::ops::Range<usize>),
    Interrupt(FunctionIndex, u16),
}

enum Pending {
    Free,
    Read(Completer<ReadOutcome>),
    Write(Completer<()>),
}

/// What lies between tasks and bus.
struct Ports {
    requests: Vec<Request>,
    /// Data of the writes among them.
    data: Vec<u8>,
    pending: Vec<Pending>,
    free: Vec<usize>,
}

impl World for Ports {
    type Event = core::convert::Infallible;

    fn handle(&mut self, event: Self::Event, _: &mut Scheduler<Self::Event>) {
        match event {}
    }
}

impl Ports {
    fn token(&mut self, pending: Pending) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.pending.push(Pending::Free);
            self.pending.len() - 1
        });
        self.pending[slot] = pending;
        Token(slot as u64 + 1)
    }

    fn take(&mut self, token: Token) -> Pending {
        let Some(slot) = (token.0 as usize).checked_sub(1) else { return Pending::Free };
        match self.pending.get_mut(slot) {
            None | Some(Pending::Free) => Pending::Free,
            Some(pending) => {
                self.free.push(slot);
                core::mem::replace(pending, Pending::Free)
            }
        }
    }
}

/// Token of the timer that wakes tasks.
const WAKE: Token = Token(0);

/// A device's tasks.
pub struct Firmware {
    tasks: Simulation<Ports>,
    armed: Option<Time>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self::new()
    }
}

impl Firmware {
    /// No tasks.
    pub fn new() -> Self {
        let ports = Ports { requests: Vec::new(), data: Vec::new(), pending: Vec::new(), free: Vec::new() };
        Self { tasks: Simulation::new(ports), armed: None }
    }

    /// What tasks use.
    pub fn port(&self) -> Port {
        Port { handle: self.tasks.handle() }
    }

    /// Brings the clock up to the bus's; to be called before anything else in a callback.
    pub fn catch_up(&mut self, bus: &dyn DeviceBus) {
        if self.tasks.now() < bus.now() {
            self.tasks.run_until(bus.now());
        }
    }

    /// Lets the tasks go on and passes on what they ask for.
    pub fn run(&mut self, bus: &mut dyn DeviceBus) {
        let now = bus.now();
        self.tasks.run_until(now);
        let (mut requests, data) = self
            .tasks
            .with(|ports, _| (core::mem::take(&mut ports.requests), core::mem::take(&mut ports.data)));
        for request in requests.drain(..) {
            match request {
                Request::Read(dma) => bus.read(dma),
                Request::Write(dma, range) => bus.write(dma, &data[range]),
                Request::Interrupt(function, vector) => bus.interrupt(function, vector),
            }
        }
        let next = self.tasks.with(|ports, scheduler| {
            // The memory is used again.
            if ports.requests.is_empty() {
                ports.requests = requests;
                ports.data = data;
                ports.data.clear();
            }
            scheduler.next_time()
        });
        if self.armed.is_some_and(|at| at <= now) {
            self.armed = None;
        }
        if let Some(next) = next
            && self.armed.is_none_or(|at| at > next)
        {
            self.armed = Some(next);
            bus.wake_at(next, WAKE);
        }
    }

    /// A DMA read ended.
    pub fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        self.catch_up(bus);
        if let Pending::Read(completer) = self.tasks.with(|ports, _| ports.take(token)) {
            completer.complete(outcome.map(<[u8]>::to_vec));
        }
        self.run(bus);
    }

    /// A DMA write left.
    pub fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.catch_up(bus);
        if let Pending::Write(completer) = self.tasks.with(|ports, _| ports.take(token)) {
            completer.complete(());
        }
        self.run(bus);
    }

    /// The bus forgot all requests and timers: the device was reset. Tasks that waited for DMA are cancelled.
    pub fn forget(&mut self) {
        self.armed = None;
        let pending = self.tasks.with(|ports, _| {
            ports.requests.clear();
            ports.data.clear();
            ports.free.clear();
            core::mem::take(&mut ports.pending)
        });
        drop(pending);
    }
}

/// What a task sees of the bus.
#[derive(Clone)]
pub struct Port {
    handle: Handle<Ports>,
}

impl Port {
    /// The time.
    pub fn now(&self) -> Time {
        self.handle.now()
    }

    /// Waits until `when`.
    pub async fn sleep_until(&self, when: Time) {
        self.handle.sleep_until(when).await;
    }

    /// Starts a task.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, task: F) -> JoinHandle<()> {
        self.handle.spawn(task)
    }

    /// Begins a DMA read; the request's token is chosen here.
    pub fn read(&self, request: Dma) -> Completion<ReadOutcome> {
        self.handle.with(|ports, _| {
            let (completer, completion) = oneshot();
            let token = ports.token(Pending::Read(completer));
            ports.requests.push(Request::Read(Dma { token, ..request }));
            completion
        })
    }

    /// Begins a DMA write; the outcome is that its last byte has left.
    pub fn write(&self, request: Dma, data: &[u8]) -> Completion<()> {
        self.handle.with(|ports, _| {
            let (completer, completion) = oneshot();
            let token = ports.token(Pending::Write(completer));
            let start = ports.data.len();
            ports.data.extend_from_slice(data);
            let length = data.len() as u32;
            let request = Dma { token, length, ..request };
            ports.requests.push(Request::Write(request, start..start + data.len()));
            completion
        })
    }

    /// Raises an interrupt, behind the writes before it.
    pub fn interrupt(&self, function: FunctionIndex, vector: u16) {
        self.handle.with(|ports, _| ports.requests.push(Request::Interrupt(function, vector)));
    }
}
