//! The admin queue and its commands (section 5): identification, queues, asynchronous events.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::dma::Coherent;
use platform::sync::{Completion, until};
use wire::nvme::admin::cns;
use wire::nvme::{
    ALL_NAMESPACES, AdminCommand, AsyncEvent, Command, CompletionEntry, DataPointer, Feature, IDENTIFY_LEN,
    IdentifyController, IdentifyNamespace, Status, feature, identify,
};

use super::data::MAX_BYTES;
use super::means::Means;
use super::queue::Queue;

/// Entries of the admin queue (Linux: `NVME_AQ_DEPTH`).
const ENTRIES: u16 = 32;

/// Maps an NVMe status to an error for programs.
pub(super) fn error_of(status: Status) -> Error {
    match status {
        s if s.is(Status::INVALID_OPCODE) => Error::NotSupported,
        s if s.is(Status::CAPACITY_EXCEEDED) || s.is(Status::LBA_OUT_OF_RANGE) => Error::NoSpace,
        s if s.is(Status::INVALID_NAMESPACE) => Error::NoDevice,
        s if s.is(Status::ABORT_REQUESTED) => Error::TimedOut,
        s if s.is(Status::INVALID_FIELD) => Error::Invalid,
        _ => Error::Io,
    }
}

/// Capabilities that the controller reports.
pub(super) struct Abilities {
    pub max_bytes: u32,
    pub write_cache: bool,
    pub discard: bool,
    pub write_zeroes: bool,
    pub sgl: bool,
    /// Most namespaces.
    namespaces: u32,
    /// Serial number of the drive.
    pub serial: String,
    /// Name of the subsystem that it belongs to.
    pub subsystem: String,
}

/// What waits for an admin command.
pub(super) enum Waiting {
    /// A task that sent the command and waits for its result.
    Caller(Completion<Result<CompletionEntry, Error>>),
    /// The next asynchronous event.
    Event,
}

type EventHandler = dyn Fn(&Cpu, AsyncEvent);

/// The admin queue.
pub(super) struct Admin {
    means: Rc<Means>,
    queue: Queue<Waiting>,
    /// Called for each asynchronous event.
    on_event: Box<EventHandler>,
}

impl Admin {
    pub fn allocate(cpu: &Cpu, means: &Means) -> Result<Queue<Waiting>, Error> {
        let registers = &means.registers;
        let entries = ENTRIES.min(registers.max_entries());
        Queue::new(cpu, &*means.dma, 0, entries, registers.capabilities.doorbell_stride, None)
    }

    pub fn new(
        means: Rc<Means>,
        queue: Queue<Waiting>,
        on_event: impl Fn(&Cpu, AsyncEvent) + 'static,
    ) -> Self {
        Self { means, queue, on_event: Box::new(on_event) }
    }

    /// Enables the controller with this queue, which is open only after [`set_live`](Self::set_live).
    pub async fn enable_controller(&self, cpu: &Cpu) -> Result<(), Error> {
        self.queue.rewind(cpu);
        let (submission, completion) = self.queue.bases();
        self.means.registers.enable(cpu, self.queue.entries(), submission, completion).await
    }

    /// Whether commands are accepted.
    pub fn set_live(&self, live: bool) {
        self.queue.live.set(live);
    }

    /// Handles all completions, and returns how many there were.
    pub fn reap(&self, cpu: &Cpu) -> usize {
        let _part = cpu.book(Part::Driver);
        let reaped = self.means.reap(cpu, &self.queue);
        let found = reaped.found();
        for (entry, waiting) in reaped.ended {
            cpu.work(self.means.options.costs.complete);
            match waiting {
                Waiting::Caller(caller) => caller.complete(Ok(entry)),
                // A controller that sends no events answers with an error.
                Waiting::Event if entry.status.is_success() => {
                    self.means.count(|c| c.events += 1);
                    (self.on_event)(cpu, AsyncEvent::from_bits(entry.result));
                }
                Waiting::Event => {}
            }
        }
        found
    }

    /// Fails all pending commands. The controller must have dropped them.
    pub fn cancel(&self, error: Error) {
        for waiting in self.queue.take_all() {
            if let Waiting::Caller(caller) = waiting {
                caller.complete(Err(error));
            }
        }
    }

    /// The controller is gone: fails all pending commands.
    pub fn lose(&self, error: Error) {
        self.queue.lose();
        self.cancel(error);
    }

    /// Frees the queue's memory.
    pub fn free(&self, cpu: &Cpu) {
        self.queue.free_memory(cpu, &*self.means.dma);
    }

    /// Submits a command and waits for its completion.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it does not complete, [`Error::Cancelled`] if the controller is reset or gone, or an
    /// error for its status.
    pub async fn command(&self, cpu: &Cpu, command: Command) -> Result<CompletionEntry, Error> {
        if !self.queue.live.get() {
            return Err(Error::Cancelled);
        }
        let slot = self.queue.take_slot().ok_or(Error::Busy)?;
        let done = Completion::new();
        cpu.work(self.means.options.costs.submit);
        self.queue.push(cpu, slot, command, Waiting::Caller(done.clone()));
        self.queue.ring(cpu, &self.means.registers.mmio);
        let deadline = cpu.now() + self.means.options.admin_timeout;
        let entry = match until(cpu, deadline, done.wait()).await {
            Some(entry) => entry?,
            None => {
                // Perhaps only the interrupt was lost.
                cpu.sync().await;
                if self.reap(cpu) > 0 {
                    self.means.count(|c| c.lost_interrupts += 1);
                }
                done.try_take().ok_or(Error::TimedOut)??
            }
        };
        if entry.status.is_success() { Ok(entry) } else { Err(error_of(entry.status)) }
    }

    /// Submits a command that reads `length` bytes.
    pub async fn read_data(&self, cpu: &Cpu, command: Command, length: u64) -> Result<Vec<u8>, Error> {
        let memory = self.means.dma.alloc_coherent(cpu, length, None)?;
        let done = self.command(cpu, command.with_data(pointer(memory.bus.get()))).await;
        let data = done.map(|_| bytes_of(cpu, memory));
        // After a timeout the controller may still write to this memory, so it is freed with the function's domain.
        if !matches!(data, Err(Error::TimedOut)) {
            self.means.dma.free_coherent(cpu, memory);
        }
        data
    }

    async fn identify_page(
        &self,
        cpu: &Cpu,
        cns: u8,
        namespace: u32,
    ) -> Result<Box<[u8; IDENTIFY_LEN]>, Error> {
        let command = AdminCommand::Identify { cns, controller: 0 }.command(0, namespace);
        let data = self.read_data(cpu, command, IDENTIFY_LEN as u64).await?;
        data.into_boxed_slice().try_into().map_err(|_| Error::Io)
    }

    /// Reads the controller's capabilities.
    pub async fn identify(&self, cpu: &Cpu) -> Result<Abilities, Error> {
        let page = self.identify_page(cpu, cns::CONTROLLER, 0).await?;
        let says = IdentifyController::parse(&page);
        let most = match says.max_transfer_shift {
            0 => MAX_BYTES,
            shift => 4096u32.checked_shl(shift.into()).unwrap_or(MAX_BYTES).clamp(4096, MAX_BYTES),
        };
        Ok(Abilities {
            max_bytes: most,
            write_cache: says.volatile_write_cache,
            discard: says.commands & identify::ONCS_DATASET != 0,
            write_zeroes: says.commands & identify::ONCS_WRITE_ZEROES != 0,
            sgl: says.sgl & identify::SGLS_SUPPORTED != 0,
            namespaces: says.namespaces,
            serial: says.serial,
            subsystem: says.subsystem_name,
        })
    }

    /// Lists the active namespaces.
    pub async fn namespace_ids(&self, cpu: &Cpu, abilities: &Abilities) -> Result<Vec<u32>, Error> {
        match self.identify_page(cpu, cns::ACTIVE_NAMESPACES, 0).await {
            Ok(page) => Ok(identify::parse_namespaces(&page)),
            // Controllers before version 1.1 do not support the list.
            Err(Error::Invalid) => Ok((1..=abilities.namespaces).collect()),
            Err(error) => Err(error),
        }
    }

    pub async fn namespace(&self, cpu: &Cpu, id: u32) -> Result<IdentifyNamespace, Error> {
        let page = self.identify_page(cpu, cns::NAMESPACE, id).await?;
        Ok(IdentifyNamespace::parse(&page))
    }

    async fn set_feature(&self, cpu: &Cpu, value: Feature) -> Result<CompletionEntry, Error> {
        let set = AdminCommand::SetFeatures { feature: value.id(), save: false, value: value.to_bits() };
        self.command(cpu, set.command(0, 0)).await
    }

    /// Requests I/O queue pairs, and returns how many the controller allows.
    pub async fn ask_for_queues(&self, cpu: &Cpu, wanted: u16) -> Result<u16, Error> {
        let value = Feature::NumberOfQueues { submission: wanted - 1, completion: wanted - 1 };
        let entry = self.set_feature(cpu, value).await?;
        match Feature::from_bits(feature::NUMBER_OF_QUEUES, entry.result) {
            Some(Feature::NumberOfQueues { submission, completion }) => {
                Ok(wanted.min(submission.min(completion).saturating_add(1)))
            }
            _ => Err(Error::Io),
        }
    }

    /// Creates an I/O queue pair in the controller.
    pub async fn create_queue<W>(&self, cpu: &Cpu, queue: &Queue<W>, vector: u16) -> Result<(), Error> {
        let (id, size) = (queue.id(), queue.entries() - 1);
        let (submission, completion) = queue.bases();
        let command = AdminCommand::CreateCompletionQueue {
            queue: id,
            size,
            contiguous: true,
            interrupts: true,
            vector,
        };
        self.command(cpu, command.command(0, 0).with_data(pointer(completion))).await?;
        let command = AdminCommand::CreateSubmissionQueue {
            queue: id,
            size,
            contiguous: true,
            priority: 0,
            completion_queue: id,
        };
        self.command(cpu, command.command(0, 0).with_data(pointer(submission))).await?;
        Ok(())
    }

    /// Enables asynchronous events for namespaces and health, and waits for the first.
    pub async fn listen(&self, cpu: &Cpu) {
        let events = Feature::AsyncEvents { health: 0x1f, namespaces: true, firmware: false };
        // A controller that does not support the feature may still report errors.
        let _ = self.set_feature(cpu, events).await;
        self.await_event(cpu);
    }

    /// Waits for the next event.
    pub fn await_event(&self, cpu: &Cpu) {
        if !self.queue.live.get() {
            return;
        }
        if let Some(slot) = self.queue.take_slot() {
            self.queue.push(cpu, slot, AdminCommand::AsyncEventRequest.command(0, 0), Waiting::Event);
            self.queue.ring(cpu, &self.means.registers.mmio);
        }
    }

    /// Reads a log, which re-enables events that point to it (section 5.2).
    pub async fn read_log(&self, cpu: &Cpu, log: u8) {
        let read = AdminCommand::GetLogPage { log, specific: 0, retain_event: false, length: 512, offset: 0 };
        let _ = self.read_data(cpu, read.command(0, ALL_NAMESPACES), 512).await;
    }

    /// Tries to abort a command (section 5.1).
    pub async fn abort(&self, cpu: &Cpu, queue: u16, id: u16) -> Result<(), Error> {
        self.means.count(|c| c.aborts += 1);
        self.command(cpu, AdminCommand::Abort { queue, id }.command(0, 0)).await.map(|_| ())
    }
}

fn pointer(bus: u64) -> DataPointer {
    DataPointer::Prp { first: bus, second: 0 }
}

fn bytes_of(cpu: &Cpu, memory: Coherent) -> Vec<u8> {
    let mut bytes = vec![0; memory.length as usize];
    cpu.load(memory.cpu, &mut bytes);
    bytes
}
