//! Admin commands (section 5): identification, queues, asynchronous events.

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::dma::Coherent;
use platform::sync::{Completion, until};
use units::Duration;
use wire::nvme::admin::cns;
use wire::nvme::{
    ALL_NAMESPACES, AdminCommand, AsyncEvent, Command, CompletionEntry, DataPointer, Feature, IDENTIFY_LEN,
    IdentifyController, IdentifyNamespace, Status, event, feature, identify,
};

use super::controller::{Abilities, Controller};
use super::data::MAX_BYTES;
use super::queue::Work;

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

impl Controller {
    /// Submits an admin command and waits for its completion.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it does not complete, [`Error::Cancelled`] if the controller is reset or gone, or an
    /// error for its status.
    pub(super) async fn command(&self, cpu: &Cpu, command: Command) -> Result<CompletionEntry, Error> {
        if !self.admin.live.get() {
            return Err(Error::Cancelled);
        }
        let slot = self.admin.take_slot().ok_or(Error::Busy)?;
        let done = Completion::new();
        cpu.work(self.options.costs.submit);
        self.admin.push(cpu, slot, command, Work::Admin(done.clone()));
        self.admin.ring(cpu, &self.registers);
        let deadline = cpu.now() + self.options.admin_timeout;
        let entry = match until(cpu, deadline, done.wait()).await {
            Some(entry) => entry?,
            None => {
                // Perhaps only the interrupt was lost.
                cpu.sync().await;
                if self.reap(cpu, &self.admin) > 0 {
                    self.count(|c| c.lost_interrupts += 1);
                }
                done.try_take().ok_or(Error::TimedOut)??
            }
        };
        if entry.status.is_success() { Ok(entry) } else { Err(error_of(entry.status)) }
    }

    /// Submits a command that reads `length` bytes.
    pub(super) async fn read_data(&self, cpu: &Cpu, command: Command, length: u64) -> Result<Vec<u8>, Error> {
        let memory = self.dma.alloc_coherent(cpu, length, None)?;
        let pointer = DataPointer::Prp { first: memory.bus.get(), second: 0 };
        let done = self.command(cpu, command.with_data(pointer)).await;
        let data = done.map(|_| self.bytes_of(cpu, memory));
        // After a timeout the controller may still write to this memory, so it is freed with the function's domain.
        if !matches!(data, Err(Error::TimedOut)) {
            self.dma.free_coherent(cpu, memory);
        }
        data
    }

    fn bytes_of(&self, cpu: &Cpu, memory: Coherent) -> Vec<u8> {
        let mut bytes = vec![0; memory.length as usize];
        cpu.load(memory.cpu, &mut bytes);
        bytes
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
    pub(super) async fn identify(&self, cpu: &Cpu) -> Result<(), Error> {
        let page = self.identify_page(cpu, cns::CONTROLLER, 0).await?;
        let says = IdentifyController::parse(&page);
        let most = match says.max_transfer_shift {
            0 => MAX_BYTES,
            shift => 4096u32.checked_shl(shift.into()).unwrap_or(MAX_BYTES).clamp(4096, MAX_BYTES),
        };
        *self.abilities.borrow_mut() = Abilities {
            max_bytes: most,
            write_cache: says.volatile_write_cache,
            discard: says.commands & identify::ONCS_DATASET != 0,
            write_zeroes: says.commands & identify::ONCS_WRITE_ZEROES != 0,
            sgl: says.sgl & identify::SGLS_SUPPORTED != 0,
            namespaces: says.namespaces,
            subsystem: says.subsystem_name,
        };
        Ok(())
    }

    /// Lists the active namespaces.
    pub(super) async fn namespace_ids(&self, cpu: &Cpu) -> Result<Vec<u32>, Error> {
        match self.identify_page(cpu, cns::ACTIVE_NAMESPACES, 0).await {
            Ok(page) => Ok(identify::parse_namespaces(&page)),
            // Controllers before version 1.1 do not support the list.
            Err(Error::Invalid) => Ok((1..=self.abilities.borrow().namespaces).collect()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn namespace(&self, cpu: &Cpu, id: u32) -> Result<IdentifyNamespace, Error> {
        let page = self.identify_page(cpu, cns::NAMESPACE, id).await?;
        Ok(IdentifyNamespace::parse(&page))
    }

    /// Requests I/O queue pairs, and returns how many the controller allows.
    pub(super) async fn ask_for_queues(&self, cpu: &Cpu, wanted: u16) -> Result<u16, Error> {
        let value = Feature::NumberOfQueues { submission: wanted - 1, completion: wanted - 1 };
        let set = AdminCommand::SetFeatures { feature: value.id(), save: false, value: value.to_bits() };
        let entry = self.command(cpu, set.command(0, 0)).await?;
        match Feature::from_bits(feature::NUMBER_OF_QUEUES, entry.result) {
            Some(Feature::NumberOfQueues { submission, completion }) => {
                Ok(wanted.min(submission.min(completion).saturating_add(1)))
            }
            _ => Err(Error::Io),
        }
    }

    /// Creates all I/O queue pairs in the controller.
    pub(super) async fn create_queues(&self, cpu: &Cpu) -> Result<(), Error> {
        let queues = self.queues.borrow().clone();
        for queue in &queues {
            queue.rewind(cpu);
            let pointer = |bus| DataPointer::Prp { first: bus, second: 0 };
            let (id, size) = (queue.id, queue.entries - 1);
            let completion = AdminCommand::CreateCompletionQueue {
                queue: id,
                size,
                contiguous: true,
                interrupts: true,
                vector: self.vector_of(id),
            };
            self.command(cpu, completion.command(0, 0).with_data(pointer(queue.completion.bus.get())))
                .await?;
            let submission = AdminCommand::CreateSubmissionQueue {
                queue: id,
                size,
                contiguous: true,
                priority: 0,
                completion_queue: id,
            };
            self.command(cpu, submission.command(0, 0).with_data(pointer(queue.submission.bus()))).await?;
            queue.live.set(true);
        }
        Ok(())
    }

    /// Enables asynchronous events for namespaces and health, and waits for the first.
    pub(super) async fn listen(&self, cpu: &Cpu) {
        let value = Feature::AsyncEvents { health: 0x1f, namespaces: true, firmware: false };
        let set = AdminCommand::SetFeatures { feature: value.id(), save: false, value: value.to_bits() };
        // A controller that does not support the feature may still report errors.
        let _ = self.command(cpu, set.command(0, 0)).await;
        self.await_event(cpu);
    }

    fn await_event(&self, cpu: &Cpu) {
        if !self.admin.live.get() {
            return;
        }
        if let Some(slot) = self.admin.take_slot() {
            self.admin.push(cpu, slot, AdminCommand::AsyncEventRequest.command(0, 0), Work::Event);
            self.admin.ring(cpu, &self.registers);
        }
    }

    /// An event has arrived, or the controller will send none.
    pub(super) fn event(&self, cpu: &Cpu, entry: CompletionEntry) {
        if !entry.status.is_success() {
            return;
        }
        self.count(|c| c.events += 1);
        let Some(me) = self.me.upgrade() else { return };
        let told = AsyncEvent::from_bits(entry.result);
        self.kernel.queue_work(
            cpu,
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Driver);
                    me.heed(&cpu, told).await;
                    me.await_event(&cpu);
                })
            }),
        );
    }

    async fn heed(&self, cpu: &Cpu, told: AsyncEvent) {
        let at = self.device.address();
        self.kernel.log(format!("nvme {at}: event {}/{}", told.kind, told.information));
        // Reading the log re-enables events of this kind (section 5.2).
        let log = AdminCommand::GetLogPage {
            log: told.log,
            specific: 0,
            retain_event: false,
            length: 512,
            offset: 0,
        };
        let _ = self.read_data(cpu, log.command(0, ALL_NAMESPACES), 512).await;
        if told.kind == event::NOTICE && told.information == AsyncEvent::NAMESPACE_CHANGED.information {
            let _ = self.scan(cpu).await;
        }
        if told == AsyncEvent::PERSISTENT_ERROR {
            self.reset(cpu).await;
        }
    }

    /// Tries to abort a command (section 5.1).
    pub(super) async fn abort(&self, cpu: &Cpu, queue: u16, id: u16) -> Result<(), Error> {
        self.count(|c| c.aborts += 1);
        self.command(cpu, AdminCommand::Abort { queue, id }.command(0, 0)).await.map(|_| ())
    }

    /// Timeout of the slowest admin command.
    pub(super) fn admin_timeout(&self) -> Duration {
        self.options.admin_timeout
    }
}
