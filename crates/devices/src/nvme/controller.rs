//! A controller: registers, doorbells, life cycle, and the way of a command from fetch to completion (sections 3 to 7).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use engine::{Busy, JoinHandle, Notify};
use platform::device::FunctionIndex;
use units::{Duration, Time};
use wire::nvme::command::LEN as COMMAND_LEN;
use wire::nvme::identify::parse_controllers;
use wire::nvme::log::ErrorEntry;
use wire::nvme::registers as regs;
use wire::nvme::{
    AdminCommand, Command, CompletionEntry, Configuration, IDENTIFY_LEN, IdentifyNamespace, IoCommand,
    Status, feature,
};

use super::commands::{Commands, Running};
use super::drive::Drive;
use super::events::AsyncEvents;
use super::faults::FaultKind;
use super::features::Features;
use super::host_memory::HostMemory;
use super::interrupts::CompletionInterrupts;
use super::io::NvmCommands;
use super::params::BUFFER_BAR;
use super::queues::{CompletionQueue, Queues, Rung, SubmissionQueue};
use super::registers::Registers;
use super::{identify, logs};
use crate::firmware::Port;

/// A controller of the drive.
pub(super) struct Controller {
    number: u16,
    drive: Rc<Drive>,
    port: Port,
    registers: RefCell<Registers>,
    interrupts: CompletionInterrupts,
    queues: RefCell<Queues>,
    commands: RefCell<Commands>,
    events: RefCell<AsyncEvents>,
    features: Rc<Features>,
    memory: Rc<HostMemory>,
    io: NvmCommands,
    /// Injected fault: writes to CC are ignored.
    deaf: Cell<bool>,
    /// When the next command can start.
    next_start: Cell<Time>,
    /// Time of commands' starts.
    busy: Cell<Busy>,
    /// Tasks that a reset ends.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    /// Notified when there may be something to fetch.
    kick: Notify,
    /// Notified when a completion queue gets room.
    room: Notify,
    /// Notified when a command ends.
    ended: Notify,
}

impl Controller {
    pub fn new(number: u16, drive: Rc<Drive>, port: Port) -> Rc<Self> {
        let function = FunctionIndex(number as u8);
        let features = Rc::new(Features::new(Rc::clone(&drive)));
        let memory = Rc::new(HostMemory::new(function, port.clone(), Rc::clone(&drive)));
        let io = NvmCommands {
            controller: number,
            port: port.clone(),
            drive: Rc::clone(&drive),
            memory: Rc::clone(&memory),
            features: Rc::clone(&features),
        };
        Rc::new(Self {
            number,
            drive,
            registers: RefCell::default(),
            interrupts: CompletionInterrupts::new(function, port.clone()),
            port,
            queues: RefCell::default(),
            commands: RefCell::default(),
            events: RefCell::default(),
            features,
            memory,
            io,
            deaf: Cell::default(),
            next_start: Cell::default(),
            busy: Cell::default(),
            tasks: RefCell::default(),
            kick: Notify::new(),
            room: Notify::new(),
            ended: Notify::new(),
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let task = self.port.spawn(task);
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() > 2 * usize::from(self.drive.params.timing.commands_in_hand) {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    // Registers and doorbells.

    /// Handles a read of a BAR.
    pub fn bar_read(&self, bar: u8, offset: u64, data: &mut [u8]) {
        let place = offset as usize..(offset as usize).saturating_add(data.len());
        let bytes = match bar {
            BUFFER_BAR => self.memory.bar_read(place),
            _ => {
                let (params, mask) = (&self.drive.params, self.interrupts.mask());
                let registers = self.registers.borrow().emit(params, mask, &self.memory);
                registers.get(place).map(<[u8]>::to_vec)
            }
        };
        match bytes {
            Some(bytes) => data.copy_from_slice(&bytes),
            None => data.fill(0),
        }
    }

    /// Handles a write of the controller memory buffer.
    pub fn buffer_write(&self, offset: u64, data: &[u8]) {
        self.memory.bar_write(offset as usize..(offset as usize).saturating_add(data.len()), data);
    }

    /// Handles a write of one doubleword of the registers.
    pub fn register_write(self: &Rc<Self>, at: u64, value: u32) {
        match at {
            regs::DOORBELLS.. => {
                let stride = 4 << self.drive.params.doorbell_stride;
                let number = (at - regs::DOORBELLS) / stride;
                if (at - regs::DOORBELLS) % stride == 0 {
                    self.doorbell(number, value);
                }
            }
            regs::INTMS => self.mask_interrupts(self.interrupts.mask() | value),
            regs::INTMC => self.mask_interrupts(self.interrupts.mask() & !value),
            regs::CC => self.configure(Configuration::from_bits(value)),
            _ if at & !4 == regs::CMBMSC => self.memory.write_control(at, value),
            _ => self.registers.borrow_mut().write(at, value),
        }
    }

    fn doorbell(self: &Rc<Self>, number: u64, value: u32) {
        if !self.registers.borrow().status.ready {
            return;
        }
        let rung = self.queues.borrow_mut().ring(number, value);
        match rung {
            Ok(Rung::Tail) => self.kick.notify_one(),
            Ok(Rung::Head) => {
                self.room.notify_all();
                self.update_legacy_interrupt();
            }
            Err(event) => {
                self.events.borrow_mut().error(ErrorEntry {
                    queue: (number / 2) as u16,
                    command: 0xffff,
                    location: 0xffff,
                    ..ErrorEntry::default()
                });
                self.events.borrow_mut().raise(event);
                self.tell_events();
            }
        }
    }

    fn mask_interrupts(&self, mask: u32) {
        self.interrupts.set_mask(mask);
        self.update_legacy_interrupt();
    }

    /// The host enabled or disabled MSI-X.
    pub fn use_messages(&self, enabled: bool) {
        self.interrupts.use_messages(enabled);
        self.update_legacy_interrupt();
    }

    fn update_legacy_interrupt(&self) {
        self.interrupts.update_legacy(|| self.queues.borrow().has_unread());
    }

    // Life cycle (sections 3.1.5 and 7.3).

    /// Handles a write of CC (section 3.1.5).
    fn configure(self: &Rc<Self>, new: Configuration) {
        if self.deaf.get() {
            return;
        }
        let old = std::mem::replace(&mut self.registers.borrow_mut().configuration, new);
        self.memory.set_page_shift(new.page_shift);
        if old.enable && !new.enable {
            self.controller_reset();
        }
        if !old.enable && new.enable {
            self.start();
        }
        if new.shutdown != old.shutdown && matches!(new.shutdown, 1 | 2) {
            self.registers.borrow_mut().status.shutdown = 1;
            let this = Rc::clone(self);
            self.spawn(async move {
                // A normal shutdown flushes everything; an abrupt one does its best, which is the same here.
                let _ = this.io.flush().await;
                this.registers.borrow_mut().status.shutdown = 2;
            });
        } else if new.shutdown == 0 {
            self.registers.borrow_mut().status.shutdown = 0;
        }
    }

    fn start(self: &Rc<Self>) {
        let mut registers = self.registers.borrow_mut();
        let Some((submission, completion)) = registers.admin_queues() else {
            registers.status.fatal = true;
            return;
        };
        drop(registers);
        self.queues.borrow_mut().start(submission, completion);
        let this = Rc::clone(self);
        let ready = self.port.now() + self.drive.params.timing.enable;
        self.spawn(async move {
            this.port.sleep_until(ready).await;
            this.registers.borrow_mut().status.ready = true;
            for _ in 0..this.drive.params.timing.fetches {
                let fetcher = Rc::clone(&this);
                this.spawn(async move { fetcher.fetch_commands().await });
            }
        });
    }

    /// How long it was busy with starting commands up to `now`.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy.get().until(now)
    }

    /// Queues and commands are lost, but the admin queue registers are kept (section 7.3.2).
    fn controller_reset(&self) {
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        self.registers.borrow_mut().controller_reset();
        self.queues.take();
        self.commands.take();
        self.events.take();
        self.features.reset();
        self.deaf.take();
        self.next_start.take();
        let mut busy = self.busy.get();
        busy.cancel(self.port.now());
        self.busy.set(busy);
        self.interrupts.controller_reset();
    }

    /// Function or conventional reset, which also clears the registers.
    pub fn reset(&self) {
        self.controller_reset();
        self.registers.take();
        self.interrupts.use_messages(false);
        self.memory.reset();
    }

    /// Subsystem reset (NSSR), which CSTS shows.
    pub fn subsystem_reset(&self) {
        self.reset();
        self.registers.borrow_mut().status.subsystem_reset = true;
    }

    /// Fatal error (CSTS.CFS): nothing is processed until a reset.
    fn fail(&self) {
        self.registers.borrow_mut().status.fatal = true;
        self.queues.borrow_mut().close_all();
    }

    // Command processing.

    /// Task: fetches commands in arbitration order.
    async fn fetch_commands(self: Rc<Self>) {
        loop {
            let arbitration = self.features.value(feature::ARBITRATION);
            let commands = u32::from(self.drive.params.timing.commands_in_hand);
            let fetch = self.queues.borrow_mut().pick(arbitration, commands);
            let Some(fetch) = fetch else {
                self.kick.notified().await;
                continue;
            };
            // Wakes other fetchers, which may have work as well.
            self.kick.notify_one();
            self.port.sleep_until(self.port.now() + self.drive.params.timing.fetch).await;
            let read = self.memory.read(fetch.address, fetch.count * COMMAND_LEN as u32);
            let Ok(bytes) = read.data().await else {
                self.fail();
                continue;
            };
            if !self.queues.borrow_mut().fetched(&fetch) {
                continue;
            }
            for entry in bytes.chunks_exact(COMMAND_LEN).filter_map(|entry| entry.first_chunk()) {
                self.begin(fetch.queue, Command::parse(entry));
            }
        }
    }

    fn begin(self: &Rc<Self>, queue: u16, command: Command) {
        // The identifier may be in use by a command or by a waiting event request.
        let is_free = queue != 0 || !self.events.borrow().is_requested_by(command.id);
        let running = if is_free { self.commands.borrow_mut().add(queue, command.id) } else { None };
        let this = Rc::clone(self);
        self.spawn(async move {
            match running {
                None => this.post(queue, command.id, 0, Status::ID_CONFLICT.dnr(), None).await,
                Some(running) => {
                    this.execute(queue, &command, &running).await;
                    this.commands.borrow_mut().remove(queue, command.id);
                }
            }
            if queue != 0 {
                this.queues.borrow_mut().done();
                this.kick.notify_one();
            }
            this.ended.notify_all();
        });
    }

    /// Runs one command from decoding to completion.
    async fn execute(self: &Rc<Self>, queue: u16, command: &Command, running: &Running) {
        let fault = self.drive.faults.borrow_mut().take(queue, command.opcode);
        match fault {
            Some(FaultKind::Hang) => core::future::pending::<()>().await,
            Some(FaultKind::Fatal) => return self.fail(),
            Some(FaultKind::Deaf) => {
                self.deaf.set(true);
                core::future::pending::<()>().await;
            }
            _ => {}
        }
        let timing = self.drive.params.timing;
        let start = self.next_start.get().max(self.port.now());
        self.next_start.set(start + timing.command_interval);
        let mut busy = self.busy.get();
        busy.add(self.port.now(), timing.command_interval);
        self.busy.set(busy);
        self.port.sleep_until(start + timing.decode).await;
        let outcome = match (running.aborted(), fault) {
            (Some(status), _) | (None, Some(FaultKind::Fail(status))) => Err(status),
            _ => {
                running.begin();
                match queue {
                    0 => match self.admin(command).await {
                        // Waits for an event.
                        Ok(None) => return,
                        Ok(Some(result)) => Ok(result),
                        Err(status) => Err(status),
                    },
                    _ => self.io.execute(command).await,
                }
            }
        };
        self.port.sleep_until(self.port.now() + timing.completion).await;
        // A command that finished counts as done, but for a deleted queue its success is not reported.
        let (result, status) = match outcome {
            Ok(result) => (result, Status::SUCCESS),
            Err(status) => (0, status),
        };
        if !status.is_success() {
            self.events.borrow_mut().error(ErrorEntry {
                queue,
                command: command.id,
                status,
                location: 0xffff,
                // First block of a command that addresses blocks: nothing of it was executed.
                lba: match queue {
                    0 => 0,
                    _ => IoCommand::parse(command).and_then(|command| command.first_block()).unwrap_or(0),
                },
                namespace: command.namespace,
                ..ErrorEntry::default()
            });
            self.drive.smart.borrow_mut().error_entries += 1;
        }
        self.post(queue, command.id, result, status, fault).await;
    }

    /// Posts a completion once its queue has room, then raises the interrupt.
    async fn post(
        self: &Rc<Self>,
        queue: u16,
        id: u16,
        result: u32,
        status: Status,
        fault: Option<FaultKind>,
    ) {
        if fault == Some(FaultKind::DropCompletion) {
            return;
        }
        let place = loop {
            let place = self.queues.borrow_mut().take_place(queue);
            if let Some(place) = place {
                break place;
            }
            if !self.queues.borrow().has_submission(queue) {
                return;
            }
            self.room.notified().await;
        };
        let entry = CompletionEntry {
            result,
            submission_head: place.head,
            submission_queue: queue,
            id: if fault == Some(FaultKind::WrongId) { !id } else { id },
            phase: place.phase ^ (fault == Some(FaultKind::WrongPhase)),
            status,
        };
        // Follows the command's data, as posted writes do not pass each other.
        if let Some(sent) = self.memory.write(place.address, &entry.emit()) {
            let _ = sent.await;
        }
        if let Some(vector) = place.vector.filter(|_| fault != Some(FaultKind::DropInterrupt)) {
            self.queues.borrow_mut().count_unread(place.queue);
            self.update_legacy_interrupt();
            self.interrupt(place.queue, vector);
        }
    }

    /// Raises an interrupt for an entry of a completion queue, or coalesces it (section 7.5, feature 08h).
    fn interrupt(self: &Rc<Self>, queue: u16, vector: u16) {
        let coalescing = if queue == 0 { None } else { self.features.coalescing(vector) };
        if let Some(due) = self.interrupts.raise(vector, coalescing) {
            let this = Rc::clone(self);
            self.spawn(async move {
                this.port.sleep_until(due).await;
                this.interrupts.flush(vector);
            });
        }
    }

    /// Completes Asynchronous Event Requests while there are events.
    fn tell_events(self: &Rc<Self>) {
        loop {
            let Some((id, event)) = self.events.borrow_mut().take() else { return };
            self.answer_request(id, event.to_bits(), Status::SUCCESS);
        }
    }

    /// Completes an Asynchronous Event Request, which has no task.
    fn answer_request(self: &Rc<Self>, id: u16, result: u32, status: Status) {
        let this = Rc::clone(self);
        self.spawn(async move { this.post(0, id, result, status, None).await });
    }

    // Admin commands (section 5).

    /// Executes an admin command; `None` for one that waits for an event.
    async fn admin(self: &Rc<Self>, command: &Command) -> Result<Option<u32>, Status> {
        let admin = AdminCommand::parse(command).ok_or(Status::INVALID_OPCODE.dnr())?;
        // Admin commands over PCIe use PRPs (section 4.2, PSDT) and are never fused.
        if command.pointer_kind != 0 || command.fused != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let mut result = 0;
        match admin {
            AdminCommand::Identify { cns, .. } => {
                let page = identify::page(&self.drive, self.number, cns, command.namespace)?;
                self.memory.scatter(command, &page[..]).await?;
            }
            AdminCommand::CreateCompletionQueue { queue, size, contiguous, interrupts, vector } => {
                let (base, entries) = self.new_queue(command, queue, size, contiguous)?;
                let vector = interrupts.then_some(vector);
                if vector.is_some_and(|vector| vector >= self.drive.params.vectors.max(1)) {
                    return Err(Status::INVALID_VECTOR.dnr());
                }
                if self.registers.borrow().configuration.completion_entry_shift != 4 {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let created = CompletionQueue::new(base, entries, vector);
                self.queues.borrow_mut().create_completion(queue, created)?;
            }
            AdminCommand::CreateSubmissionQueue { queue, size, contiguous, completion_queue, .. } => {
                let (base, entries) = self.new_queue(command, queue, size, contiguous)?;
                if completion_queue == 0 || completion_queue > self.drive.params.io_queues {
                    return Err(Status::INVALID_QUEUE_ID.dnr());
                }
                if self.registers.borrow().configuration.submission_entry_shift != 6 {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let created = SubmissionQueue::new(base, entries, completion_queue);
                self.queues.borrow_mut().create_submission(queue, created)?;
            }
            AdminCommand::DeleteSubmissionQueue { queue } => self.delete_submission(queue).await?,
            AdminCommand::DeleteCompletionQueue { queue } => {
                self.queues.borrow_mut().delete_completion(queue)?;
            }
            AdminCommand::SetFeatures { feature, save, value } => {
                let has_io_queues = self.queues.borrow().has_io_queues();
                result = self.features.set(command.namespace, feature, save, value, has_io_queues)?;
            }
            AdminCommand::GetFeatures { feature, select, value } => {
                result = self.features.get(feature, select, value)?;
            }
            AdminCommand::GetLogPage { log, retain_event, length, offset, .. } => {
                let page = logs::page(&self.drive, &self.events.borrow(), log)?;
                let rest = page.get(offset as usize..).filter(|_| offset % 4 == 0);
                let mut data = rest.ok_or(Status::INVALID_FIELD.dnr())?.to_vec();
                self.drive.check_transfer(length)?;
                data.resize(length as usize, 0);
                self.memory.scatter(command, &data).await?;
                if !retain_event {
                    self.events.borrow_mut().log_read(log);
                }
            }
            // Executed immediately, so the abort limit is never exceeded.
            AdminCommand::Abort { queue, id } => result = u32::from(!self.abort(queue, id)),
            AdminCommand::AsyncEventRequest => {
                self.events.borrow_mut().request(command.id, self.drive.params.event_requests)?;
                self.tell_events();
                return Ok(None);
            }
            AdminCommand::Format { format, secure_erase, protection } => {
                if secure_erase > 1 || protection != 0 {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let mut store = self.drive.store.borrow_mut();
                self.drive.namespaces.borrow_mut().format(command.namespace, format, &mut store)?;
            }
            AdminCommand::NamespaceAttachment { select } => {
                let page = self.memory.gather(command, IDENTIFY_LEN as u64).await?;
                let controllers = parse_controllers(page.first_chunk().ok_or(Status::INTERNAL_ERROR)?);
                let ports = u16::from(self.drive.params.ports);
                if controllers.is_empty() || controllers.iter().any(|&number| number >= ports) {
                    return Err(Status::CONTROLLER_LIST_INVALID.dnr());
                }
                self.drive.namespaces.borrow_mut().attach(command.namespace, &controllers, select)?;
            }
            AdminCommand::NamespaceManagement { select: 0 } => {
                let page = self.memory.gather(command, IDENTIFY_LEN as u64).await?;
                let wanted = IdentifyNamespace::parse(page.first_chunk().ok_or(Status::INTERNAL_ERROR)?);
                // Thin provisioning is not supported.
                if wanted.size == 0 || wanted.size != wanted.capacity {
                    return Err(Status::NO_THIN_PROVISIONING.dnr());
                }
                result = self.drive.namespaces.borrow_mut().create(wanted.size, wanted.format)?;
            }
            AdminCommand::NamespaceManagement { select: 1 } => {
                let mut store = self.drive.store.borrow_mut();
                self.drive.namespaces.borrow_mut().delete(command.namespace, &mut store)?;
            }
            AdminCommand::NamespaceManagement { .. } => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(Some(result))
    }

    /// Base address (PRP entry 1) and entries of an I/O queue that is to be created.
    fn new_queue(
        &self,
        command: &Command,
        queue: u16,
        size: u16,
        contiguous: bool,
    ) -> Result<(u64, u32), Status> {
        let params = &self.drive.params;
        if queue == 0 || queue > params.io_queues {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if size == 0 || u32::from(size) >= params.queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        if !contiguous {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let base = u64::from_le_bytes(*command.data.first_chunk().unwrap_or(&[0; 8]));
        if base % self.memory.page_bytes() != 0 {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        Ok((base, u32::from(size) + 1))
    }

    /// Deletes a submission queue after its last command has ended (section 5.6).
    async fn delete_submission(&self, queue: u16) -> Result<(), Status> {
        self.queues.borrow_mut().close(queue)?;
        while self.commands.borrow().abort_queue(queue) || self.queues.borrow().is_fetching(queue) {
            self.ended.notified().await;
        }
        self.queues.borrow_mut().delete_submission(queue);
        Ok(())
    }

    /// Aborts a command if that is still possible (section 5.1).
    fn abort(self: &Rc<Self>, queue: u16, id: u16) -> bool {
        if queue == 0 && self.events.borrow_mut().withdraw(id) {
            self.answer_request(id, 0, Status::ABORT_REQUESTED);
            return true;
        }
        self.commands.borrow().abort(queue, id)
    }
}
