//! Firmware as tasks: sequential programs behind the callbacks of a [`Device`](platform::device::Device).
//!
//! Tasks use a [`Port`] for DMA, interrupts and sleep. The device passes events to its [`Firmware`] and then lets it
//! [run](Firmware::run), which forwards the tasks' requests to the bus. The clock is that of the bus.

use core::future::Future;
use engine::{Completer, Completion, Epoch, Handle, JoinHandle, Scheduler, Simulation, World, oneshot};
use platform::device::{DeviceBus, Dma, DmaError, FunctionIndex, Token};
use units::Time;

/// The data of a DMA read, or why there is none.
pub type ReadOutcome = Result<Vec<u8>, DmaError>;

/// Requests of tasks that have not been forwarded to the bus yet.
enum Request {
    Read(Dma),
    Write(Dma, core::ops::Range<usize>),
    Interrupt(FunctionIndex, u16),
    InterruptStatus(FunctionIndex, bool),
}

enum Pending {
    Free,
    Read(FunctionIndex, Completer<ReadOutcome>),
    Write(FunctionIndex, Completer<()>),
}

/// Slot of a request in flight.
struct RequestSlot {
    pending: Pending,
    /// Ends with each use, so that a completion from before a reset finds nothing.
    epoch: Epoch,
}

/// State shared by tasks and bus.
struct TaskPorts {
    requests: Vec<Request>,
    /// Data of the write requests.
    data: Vec<u8>,
    slots: Vec<RequestSlot>,
    free: Vec<usize>,
}

impl World for TaskPorts {
    type Event = core::convert::Infallible;

    fn handle(&mut self, event: Self::Event, _: &mut Scheduler<Self::Event>) {
        match event {}
    }
}

impl TaskPorts {
    fn token(&mut self, pending: Pending) -> Token {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(RequestSlot { pending: Pending::Free, epoch: Epoch::default() });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[number];
        slot.pending = pending;
        slot.epoch.end();
        Token(u64::from(slot.epoch.number()) << 32 | (number as u64 + 1))
    }

    fn take(&mut self, token: Token) -> Pending {
        let Some(number) = (token.0 as u32 as usize).checked_sub(1) else { return Pending::Free };
        match self.slots.get_mut(number) {
            Some(slot)
                if slot.epoch.number() == (token.0 >> 32) as u32
                    && !matches!(slot.pending, Pending::Free) =>
            {
                self.free.push(number);
                core::mem::replace(&mut slot.pending, Pending::Free)
            }
            _ => Pending::Free,
        }
    }
}

/// Token of the timer that wakes tasks.
const WAKE: Token = Token(0);

/// A device's tasks.
pub struct Firmware {
    tasks: Simulation<TaskPorts>,
    armed: Option<Time>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self::new()
    }
}

impl Firmware {
    /// Creates a firmware without tasks.
    pub fn new() -> Self {
        let ports = TaskPorts { requests: Vec::new(), data: Vec::new(), slots: Vec::new(), free: Vec::new() };
        Self { tasks: Simulation::new(ports), armed: None }
    }

    /// The interface for tasks.
    pub fn port(&self) -> Port {
        Port { handle: self.tasks.handle() }
    }

    /// Advances the clock to that of the bus. Has to be called first in every callback.
    pub fn catch_up(&mut self, bus: &dyn DeviceBus) {
        if self.tasks.now() < bus.now() {
            self.tasks.run_until(bus.now());
        }
    }

    /// Runs the tasks and forwards their requests.
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
                Request::InterruptStatus(function, pending) => bus.set_interrupt_status(function, pending),
            }
        }
        let next = self.tasks.with(|ports, scheduler| {
            // Recycles the memory.
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

    /// A DMA read completed.
    pub fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        self.catch_up(bus);
        if let Pending::Read(_, completer) = self.tasks.with(|ports, _| ports.take(token)) {
            completer.complete(outcome.map(<[u8]>::to_vec));
        }
        self.run(bus);
    }

    /// A DMA write has left.
    pub fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.catch_up(bus);
        if let Pending::Write(_, completer) = self.tasks.with(|ports, _| ports.take(token)) {
            completer.complete(());
        }
        self.run(bus);
    }

    /// The device was reset, and the bus dropped all requests and timers. Cancels tasks that wait for DMA.
    pub fn forget(&mut self) {
        self.armed = None;
        self.cancel(|_| true);
    }

    /// A function was reset, and the bus dropped its requests. Cancels its tasks that wait for DMA.
    pub fn forget_function(&mut self, function: FunctionIndex) {
        self.cancel(|whose| whose == function);
    }

    fn cancel(&mut self, meant: impl Fn(FunctionIndex) -> bool) {
        let cancelled = self.tasks.with(|ports, _| {
            ports.requests.retain(|request| match request {
                Request::Read(dma) | Request::Write(dma, _) => !meant(dma.function),
                Request::Interrupt(function, _) | Request::InterruptStatus(function, _) => !meant(*function),
            });
            let mut cancelled = Vec::new();
            for (number, slot) in ports.slots.iter_mut().enumerate() {
                let (Pending::Read(function, _) | Pending::Write(function, _)) = &slot.pending else {
                    continue;
                };
                if meant(*function) {
                    cancelled.push(core::mem::replace(&mut slot.pending, Pending::Free));
                    ports.free.push(number);
                }
            }
            cancelled
        });
        // Dropped after the borrow of the ports ends, as it wakes waiting tasks.
        drop(cancelled);
    }
}

/// A task's interface to the bus.
#[derive(Clone)]
pub struct Port {
    handle: Handle<TaskPorts>,
}

impl Port {
    /// Current time.
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

    /// Starts a DMA read. The request's token is assigned here.
    pub fn read(&self, request: Dma) -> Completion<ReadOutcome> {
        self.handle.with(|ports, _| {
            let (completer, completion) = oneshot();
            let token = ports.token(Pending::Read(request.function, completer));
            ports.requests.push(Request::Read(Dma { token, ..request }));
            completion
        })
    }

    /// Starts a DMA write. The result completes when its last byte has left.
    pub fn write(&self, request: Dma, data: &[u8]) -> Completion<()> {
        self.handle.with(|ports, _| {
            let (completer, completion) = oneshot();
            let token = ports.token(Pending::Write(request.function, completer));
            let start = ports.data.len();
            ports.data.extend_from_slice(data);
            let length = data.len() as u32;
            let request = Dma { token, length, ..request };
            ports.requests.push(Request::Write(request, start..start + data.len()));
            completion
        })
    }

    /// Raises an interrupt, ordered after earlier writes.
    pub fn interrupt(&self, function: FunctionIndex, vector: u16) {
        self.handle.with(|ports, _| ports.requests.push(Request::Interrupt(function, vector)));
    }

    /// Sets whether a function has a legacy interrupt pending, ordered after earlier writes.
    pub fn set_interrupt_status(&self, function: FunctionIndex, pending: bool) {
        self.handle.with(|ports, _| ports.requests.push(Request::InterruptStatus(function, pending)));
    }
}
