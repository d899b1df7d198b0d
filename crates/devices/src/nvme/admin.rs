//! Admin commands (section 5).

use std::rc::Rc;

use wire::nvme::admin::{cns, opcode};
use wire::nvme::identify::{
    self, IdentifyController, IdentifyNamespace, LbaFormat, emit_controllers, emit_descriptors,
    emit_namespaces,
};
use wire::nvme::log::{self, ErrorEntry, FirmwareSlotLog};
use wire::nvme::registers::VERSION_1_4;
use wire::nvme::{ALL_NAMESPACES, AdminCommand, Command, Feature, IDENTIFY_LEN, Status, feature, io};

use super::controller::Controller;
use super::drive::Namespace;
use super::events::ERRORS;
use super::queues::{CompletionQueue, SubmissionQueue};

/// Supported LBA formats, as log2 of the block size.
const FORMATS: [u8; 2] = [9, 12];
/// One firmware slot, which is read-only as there is no command to write it.
const ONE_FIRMWARE_SLOT: u8 = 1 << 1 | 1;
/// Warning temperature recommended by the specification (343 K, WCTEMP).
const WARNING_TEMPERATURE: u16 = 343;
/// Ten kelvin above the warning, assumed: the specification recommends no value.
const CRITICAL_TEMPERATURE: u16 = 353;

/// The IEEE OUI of a PCI vendor (registry of MA-L assignments); 0 if unknown.
fn oui(vendor: u16) -> u32 {
    match vendor {
        0x8086 => 0x5c_d2e4,
        0x144d => 0x00_2538,
        _ => 0,
    }
}

impl Controller {
    /// Executes an admin command; `None` for one that waits for an event.
    pub async fn admin(self: &Rc<Self>, command: &Command) -> Result<Option<u32>, Status> {
        let admin = AdminCommand::parse(command).ok_or(Status::INVALID_OPCODE.dnr())?;
        // Admin commands over PCIe use PRPs (section 4.2, PSDT) and are never fused.
        if command.pointer_kind != 0 || command.fused != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let done = match admin {
            AdminCommand::Identify { cns, controller } => self.identify(command, cns, controller).await,
            AdminCommand::CreateCompletionQueue { queue, size, contiguous, interrupts, vector } => {
                self.create_completion(command, queue, size, contiguous, interrupts.then_some(vector))
            }
            AdminCommand::CreateSubmissionQueue { queue, size, contiguous, completion_queue, .. } => {
                self.create_submission(command, (queue, completion_queue), size, contiguous)
            }
            AdminCommand::DeleteSubmissionQueue { queue } => self.delete_submission(queue).await,
            AdminCommand::DeleteCompletionQueue { queue } => self.delete_completion(queue),
            AdminCommand::SetFeatures { feature, save, value } => {
                self.set_feature(command, feature, save, value)
            }
            AdminCommand::GetFeatures { feature, select, value } => self.get_feature(feature, select, value),
            AdminCommand::GetLogPage { log, retain_event, length, offset, .. } => {
                self.log_page(command, log, retain_event, length, offset).await
            }
            // Executed immediately, so the abort limit is never exceeded.
            AdminCommand::Abort { queue, id } => Ok(u32::from(!self.abort(queue, id))),
            AdminCommand::AsyncEventRequest => {
                let mut state = self.state.borrow_mut();
                if state.events.requests.len() >= usize::from(self.drive.params.event_requests) {
                    return Err(Status::EVENT_LIMIT.dnr());
                }
                state.events.requests.push_back(command.id);
                drop(state);
                self.tell_events();
                return Ok(None);
            }
            AdminCommand::Format { format, secure_erase, protection } => {
                self.format(command.namespace, format, secure_erase, protection)
            }
            AdminCommand::NamespaceAttachment { select } => self.attach(command, select).await,
            AdminCommand::NamespaceManagement { select } => self.manage(command, select).await,
        };
        done.map(Some)
    }

    fn queue_limits(&self, queue: u16, size: u16) -> Result<(), Status> {
        let params = &self.drive.params;
        if queue == 0 || queue > params.io_queues {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if size == 0 || u32::from(size) >= params.queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        Ok(())
    }

    fn create_completion(
        &self,
        command: &Command,
        queue: u16,
        size: u16,
        contiguous: bool,
        vector: Option<u16>,
    ) -> Result<u32, Status> {
        self.queue_limits(queue, size)?;
        let base = queue_base(command, contiguous, self.page_bytes())?;
        if vector.is_some_and(|vector| vector >= self.drive.params.vectors.max(1)) {
            return Err(Status::INVALID_VECTOR.dnr());
        }
        let mut state = self.state.borrow_mut();
        if state.configuration.completion_entry_shift != 4 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if state.completion.contains_key(&queue) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        state.completion.insert(queue, CompletionQueue::new(base, u32::from(size) + 1, vector));
        Ok(0)
    }

    fn create_submission(
        &self,
        command: &Command,
        (queue, completion_queue): (u16, u16),
        size: u16,
        contiguous: bool,
    ) -> Result<u32, Status> {
        self.queue_limits(queue, size)?;
        let base = queue_base(command, contiguous, self.page_bytes())?;
        if completion_queue == 0 || completion_queue > self.drive.params.io_queues {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let mut state = self.state.borrow_mut();
        if !state.completion.contains_key(&completion_queue) {
            return Err(Status::CQ_INVALID.dnr());
        }
        if state.submission.contains_key(&queue) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if state.configuration.submission_entry_shift != 6 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let entries = u32::from(size) + 1;
        state.submission.insert(queue, SubmissionQueue::new(base, entries, completion_queue));
        Ok(0)
    }

    async fn delete_submission(&self, queue: u16) -> Result<u32, Status> {
        let known = self.state.borrow().submission.get(&queue).is_some_and(|queue| !queue.closed);
        if queue == 0 || !known {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        self.close_queue(queue).await;
        self.state.borrow_mut().submission.remove(&queue);
        Ok(0)
    }

    fn delete_completion(&self, queue: u16) -> Result<u32, Status> {
        let mut state = self.state.borrow_mut();
        if queue == 0 || !state.completion.contains_key(&queue) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if state.submission.values().any(|submission| submission.completion_queue == queue) {
            return Err(Status::INVALID_QUEUE_DELETION.dnr());
        }
        state.completion.remove(&queue);
        Ok(0)
    }

    fn set_feature(&self, command: &Command, id: u8, save: bool, value: u32) -> Result<u32, Status> {
        if save {
            return Err(Status::NOT_SAVEABLE.dnr());
        }
        if command.namespace != 0 && command.namespace != ALL_NAMESPACES && self.supports(id) {
            return Err(Status::NOT_NAMESPACE_SPECIFIC.dnr());
        }
        let mut value = value;
        match Feature::from_bits(id, value) {
            Some(Feature::NumberOfQueues { submission, completion }) => {
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                if self.state.borrow().completion.len() > 1 {
                    return Err(Status::SEQUENCE_ERROR.dnr());
                }
                value = self.default_feature(id);
                self.state.borrow_mut().features.insert(id, value);
                return Ok(value);
            }
            Some(Feature::VolatileWriteCache { .. }) if !self.has_volatile_cache() => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(Feature::PowerManagement { state, .. }) if state > 0 => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(Feature::InterruptVector { vector, no_coalescing }) => {
                if vector >= self.drive.params.vectors.max(1) {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                self.state.borrow_mut().uncoalesced.insert(vector, no_coalescing);
                return Ok(0);
            }
            None if !self.supports(id) => return Err(Status::INVALID_FIELD.dnr()),
            _ => {}
        }
        self.state.borrow_mut().features.insert(id, value);
        Ok(0)
    }

    fn supports(&self, id: u8) -> bool {
        matches!(id, feature::TEMPERATURE_THRESHOLD | feature::ERROR_RECOVERY)
            || Feature::from_bits(id, 0).is_some()
                && (id != feature::VOLATILE_WRITE_CACHE || self.has_volatile_cache())
    }

    fn get_feature(&self, id: u8, select: u8, value: u32) -> Result<u32, Status> {
        /// Changeable, not saveable, not namespace-specific.
        const CAPABILITIES: u32 = 1 << 2;
        if !self.supports(id) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        match select {
            0 if id == feature::INTERRUPT_VECTOR => {
                let vector = value as u16;
                if vector >= self.drive.params.vectors.max(1) {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let no_coalescing = self.state.borrow().uncoalesced.get(&vector).copied().unwrap_or(false);
                Ok(Feature::InterruptVector { vector, no_coalescing }.to_bits())
            }
            0 => Ok(self.feature(id)),
            1 | 2 => Ok(self.default_feature(id)),
            3 => Ok(CAPABILITIES),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    async fn log_page(
        &self,
        command: &Command,
        id: u8,
        retain: bool,
        length: u64,
        offset: u64,
    ) -> Result<u32, Status> {
        let page: Vec<u8> = match id {
            log::ERROR => {
                let mut entries: Vec<ErrorEntry> =
                    self.state.borrow().events.errors.iter().copied().collect();
                entries.resize(ERRORS, ErrorEntry::default());
                entries.iter().flat_map(ErrorEntry::emit).collect()
            }
            log::SMART => {
                let smart = *self.drive.smart.borrow();
                let thousands = |units: u128| units.div_ceil(1000);
                let smart = log::SmartLog {
                    data_units_read: thousands(smart.data_units_read),
                    data_units_written: thousands(smart.data_units_written),
                    ..smart
                };
                smart.emit().to_vec()
            }
            log::FIRMWARE_SLOT => {
                FirmwareSlotLog { active: 1, revision: self.drive.params.firmware.clone() }.emit().to_vec()
            }
            log::CHANGED_NAMESPACES => vec![0; log::CHANGED_NAMESPACES_LEN],
            log::COMMAND_EFFECTS => effects().to_vec(),
            _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
        };
        if offset % 4 != 0 || offset > page.len() as u64 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let shift = self.drive.params.max_transfer_shift;
        if shift > 0 && length > 4096 << shift {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let mut data = page[offset as usize..].to_vec();
        data.resize(length as usize, 0);
        self.scatter(command, &data).await?;
        if !retain {
            self.state.borrow_mut().events.log_read(id);
        }
        Ok(0)
    }

    async fn identify(&self, command: &Command, what: u8, _controller: u16) -> Result<u32, Status> {
        let namespace = command.namespace;
        let namespaces = self.drive.namespaces.borrow().clone();
        let here = |ns: &&Namespace| ns.attached >> self.number & 1 == 1;
        let known = namespaces.iter().find(|ns| ns.id == namespace);
        // A valid namespace identifier, but not one of those asked about.
        let valid = namespace != 0 && namespace as usize <= self.drive.params.namespaces.len();
        let page = match what {
            cns::CONTROLLER => self.identify_controller().emit(),
            cns::NAMESPACE if valid => match known.filter(here) {
                Some(ns) => self.identify_namespace(ns).emit(),
                // Inactive: all zeros (section 5.15.2.1).
                None => Box::new([0; IDENTIFY_LEN]),
            },
            cns::ALLOCATED_NAMESPACE if valid => match known {
                Some(ns) => self.identify_namespace(ns).emit(),
                None => Box::new([0; IDENTIFY_LEN]),
            },
            cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES if namespace < ALL_NAMESPACES - 1 => {
                let all = what == cns::ALLOCATED_NAMESPACES;
                let listed = namespaces.iter().filter(|ns| ns.id > namespace && (all || here(ns)));
                emit_namespaces(listed.map(|ns| ns.id))
            }
            cns::NAMESPACE_DESCRIPTORS => match known.filter(here) {
                Some(ns) => emit_descriptors(&self.identify_namespace(ns)),
                None => return Err(Status::INVALID_NAMESPACE.dnr()),
            },
            cns::ATTACHED_CONTROLLERS if valid => {
                let attached = known.map_or(0, |ns| ns.attached);
                let controllers = (0..u16::from(self.drive.params.ports)).filter(|n| attached >> n & 1 == 1);
                emit_controllers(&controllers.collect::<Vec<_>>())
            }
            cns::CONTROLLERS => {
                emit_controllers(&(0..u16::from(self.drive.params.ports)).collect::<Vec<_>>())
            }
            cns::NAMESPACE
            | cns::ALLOCATED_NAMESPACE
            | cns::ACTIVE_NAMESPACES
            | cns::ALLOCATED_NAMESPACES
            | cns::ATTACHED_CONTROLLERS => return Err(Status::INVALID_NAMESPACE.dnr()),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        self.scatter(command, &page[..]).await?;
        Ok(0)
    }

    fn identify_controller(&self) -> IdentifyController {
        let params = &self.drive.params;
        let several = params.ports > 1;
        let capacity: u64 = params.namespaces.iter().map(|bytes| bytes.get()).sum();
        let allocated: u64 = self.drive.namespaces.borrow().iter().map(|ns| ns.bytes).sum();
        IdentifyController {
            vendor: params.ids.0,
            subsystem_vendor: params.ids.0,
            serial: params.serial.clone(),
            model: params.model.clone(),
            firmware: params.firmware.clone(),
            arbitration_burst: 3,
            oui: oui(params.ids.0),
            multi_path: if several { identify::CMIC_PORTS | identify::CMIC_CONTROLLERS } else { 0 },
            max_transfer_shift: params.max_transfer_shift,
            controller: self.number,
            version: VERSION_1_4,
            events: 0,
            kind: 1,
            admin_commands: identify::OACS_FORMAT | identify::OACS_NAMESPACES,
            abort_limit: params.aborts.saturating_sub(1),
            event_limit: params.event_requests.saturating_sub(1),
            // Effects log and extended data for Get Log Page.
            log_attributes: 0b110,
            error_entries: ERRORS as u8 - 1,
            firmware_updates: ONE_FIRMWARE_SLOT,
            power_states: 0,
            warning_temperature: WARNING_TEMPERATURE,
            critical_temperature: CRITICAL_TEMPERATURE,
            total_capacity: u128::from(capacity),
            unallocated_capacity: u128::from(capacity.saturating_sub(allocated)),
            submission_entry: 0x66,
            completion_entry: 0x44,
            namespaces: params.namespaces.len() as u32,
            commands: identify::ONCS_COMPARE | identify::ONCS_DATASET | identify::ONCS_WRITE_ZEROES,
            format: 0,
            volatile_write_cache: self.has_volatile_cache(),
            atomic_write: params.atomic_blocks,
            atomic_write_power_fail: params.atomic_blocks,
            sgl: identify::SGLS_SUPPORTED | identify::SGLS_BIT_BUCKET,
            subsystem_name: format!("nqn.2014-08.org.nvmexpress:{}", params.serial),
            max_power: 2500,
        }
    }

    fn identify_namespace(&self, namespace: &Namespace) -> IdentifyNamespace {
        let formats = FORMATS.map(|block_shift| LbaFormat { block_shift, ..LbaFormat::default() });
        let unique = u64::from(oui(self.drive.params.ids.0)) << 40 | u64::from(namespace.id);
        IdentifyNamespace {
            size: namespace.blocks(),
            capacity: namespace.blocks(),
            utilisation: namespace.blocks(),
            features: 0,
            format: FORMATS.iter().position(|&shift| shift == namespace.shift).unwrap_or(0) as u8,
            shared: self.drive.params.ports > 1,
            deallocated: 1,
            bytes: u128::from(namespace.bytes),
            // The OUI is at the start of EUI-64, and in the second half of NGUID.
            guid: u128::from(self.drive.params.ids.0) << 64 | u128::from(unique),
            eui: unique,
            formats: formats.to_vec(),
        }
    }

    fn format(&self, id: u32, format: u8, secure_erase: u8, protection: u8) -> Result<u32, Status> {
        let Some(&shift) = FORMATS.get(usize::from(format)) else { return Err(Status::INVALID_FORMAT.dnr()) };
        if secure_erase > 1 || protection != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let mut namespaces = self.drive.namespaces.borrow_mut();
        let meant = |ns: &Namespace| id == ALL_NAMESPACES || ns.id == id;
        if !namespaces.iter().any(meant) {
            return Err(Status::INVALID_NAMESPACE.dnr());
        }
        for namespace in namespaces.iter_mut().filter(|ns| meant(ns)) {
            namespace.shift = shift;
            let discarded = self.drive.store.borrow_mut().discard(namespace.base, namespace.bytes);
            discarded.map_err(|_| Status::WRITE_FAULT)?;
        }
        Ok(0)
    }

    /// Creates a namespace from the space of deleted ones, or deletes one (section 5.20). There are never more
    /// namespaces than the drive came with.
    async fn manage(&self, command: &Command, select: u8) -> Result<u32, Status> {
        match select {
            0 => self.create_namespace(command).await,
            1 => self.delete_namespaces(command.namespace),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    async fn create_namespace(&self, command: &Command) -> Result<u32, Status> {
        let page = self.gather(command, IDENTIFY_LEN as u64).await?;
        let wanted = IdentifyNamespace::parse(page.first_chunk().ok_or(Status::INTERNAL_ERROR)?);
        let &shift = FORMATS.get(usize::from(wanted.format)).ok_or(Status::INVALID_FORMAT.dnr())?;
        // Thin provisioning is not supported.
        if wanted.size == 0 || wanted.size != wanted.capacity {
            return Err(Status::NO_THIN_PROVISIONING.dnr());
        }
        let bytes = wanted.size.checked_mul(1 << shift).ok_or(Status::INSUFFICIENT_CAPACITY.dnr())?;
        let given = &self.drive.params.namespaces;
        let end: u64 = given.iter().map(|bytes| bytes.get()).sum();
        let mut namespaces = self.drive.namespaces.borrow_mut();
        let unused = |id: &u32| namespaces.iter().all(|ns| ns.id != *id);
        let id = (1..=given.len() as u32).find(unused).ok_or(Status::NAMESPACE_ID_UNAVAILABLE.dnr())?;
        let mut taken: Vec<_> = namespaces.iter().map(|ns| (ns.base, ns.base + ns.bytes)).collect();
        taken.sort_unstable();
        let mut base = 0_u64;
        for (from, to) in taken.into_iter().chain([(end, end)]) {
            if base.saturating_add(bytes) <= from {
                break;
            }
            base = to;
        }
        if base.saturating_add(bytes) > end {
            return Err(Status::INSUFFICIENT_CAPACITY.dnr());
        }
        namespaces.push(Namespace { id, base, bytes, shift, attached: 0 });
        namespaces.sort_by_key(|ns| ns.id);
        Ok(id)
    }

    fn delete_namespaces(&self, id: u32) -> Result<u32, Status> {
        let meant = |ns: &Namespace| id == ALL_NAMESPACES || ns.id == id;
        let mut namespaces = self.drive.namespaces.borrow_mut();
        if !namespaces.iter().any(meant) {
            return Err(Status::INVALID_NAMESPACE.dnr());
        }
        for namespace in namespaces.iter().filter(|ns| meant(ns)) {
            let discarded = self.drive.store.borrow_mut().discard(namespace.base, namespace.bytes);
            discarded.map_err(|_| Status::WRITE_FAULT)?;
        }
        namespaces.retain(|ns| !meant(ns));
        Ok(0)
    }

    async fn attach(&self, command: &Command, select: u8) -> Result<u32, Status> {
        let page = self.gather(command, IDENTIFY_LEN as u64).await?;
        let page: &[u8; IDENTIFY_LEN] = page.first_chunk().ok_or(Status::INTERNAL_ERROR)?;
        let controllers = identify::parse_controllers(page);
        let ports = u16::from(self.drive.params.ports);
        if controllers.is_empty() || controllers.iter().any(|&number| number >= ports) {
            return Err(Status::CONTROLLER_LIST_INVALID.dnr());
        }
        let mask = controllers.iter().fold(0, |mask, number| mask | 1 << number);
        let mut namespaces = self.drive.namespaces.borrow_mut();
        let known = namespaces.iter_mut().find(|ns| ns.id == command.namespace);
        let namespace = known.ok_or(Status::INVALID_NAMESPACE.dnr())?;
        match select {
            0 if namespace.attached & mask != 0 => return Err(Status::ALREADY_ATTACHED.dnr()),
            0 => namespace.attached |= mask,
            1 if namespace.attached & mask != mask => return Err(Status::NOT_ATTACHED.dnr()),
            1 => namespace.attached &= !mask,
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(0)
    }
}

/// Base address of a queue to be created (PRP entry 1).
fn queue_base(command: &Command, contiguous: bool, page: u64) -> Result<u64, Status> {
    if !contiguous {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let base = u64::from_le_bytes(*command.data.first_chunk().unwrap_or(&[0; 8]));
    if base % page == 0 { Ok(base) } else { Err(Status::PRP_OFFSET_INVALID.dnr()) }
}

fn effects() -> Box<[u8; 4096]> {
    /// Supported (CSUPP).
    const SUPPORTED: u32 = 1;
    /// Changes user data (LBCC).
    const CHANGES_DATA: u32 = 1 << 1;
    /// Changes the namespace inventory (NIC).
    const CHANGES_INVENTORY: u32 = 1 << 3;
    let plain = |opcode| (opcode, SUPPORTED);
    let admin = [
        plain(opcode::DELETE_SQ),
        plain(opcode::CREATE_SQ),
        plain(opcode::GET_LOG_PAGE),
        plain(opcode::DELETE_CQ),
        plain(opcode::CREATE_CQ),
        plain(opcode::IDENTIFY),
        plain(opcode::ABORT),
        plain(opcode::SET_FEATURES),
        plain(opcode::GET_FEATURES),
        plain(opcode::ASYNC_EVENT_REQUEST),
        (opcode::NAMESPACE_MANAGEMENT, SUPPORTED | CHANGES_INVENTORY),
        (opcode::NAMESPACE_ATTACHMENT, SUPPORTED | CHANGES_INVENTORY),
        (opcode::FORMAT, SUPPORTED | CHANGES_DATA),
    ];
    let io = [
        plain(io::opcode::FLUSH),
        plain(io::opcode::READ),
        plain(io::opcode::COMPARE),
        (io::opcode::WRITE, SUPPORTED | CHANGES_DATA),
        (io::opcode::WRITE_ZEROES, SUPPORTED | CHANGES_DATA),
        (io::opcode::DATASET_MANAGEMENT, SUPPORTED | CHANGES_DATA),
    ];
    log::command_effects(&admin, &io)
}
