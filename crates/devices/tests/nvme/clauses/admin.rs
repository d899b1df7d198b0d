//! Admin commands (section 5).

use units::Duration;
use wire::nvme::admin::cns;
use wire::nvme::identify::parse_namespaces;
use wire::nvme::io::Blocks;
use wire::nvme::registers::submission_doorbell;
use wire::nvme::*;

use super::{Driver, pattern, prp};
use crate::clauses;

clauses! {
    fn s5_1_abort_of_what_is_not_there(d) {
        let mut d = d.ready();
        let entry = d.admin(AdminCommand::Abort { queue: 1, id: 99 }, 0, prp(0));
        assert!(entry.status.is_success());
        assert_eq!(entry.result & 1, 1, "not aborted");
    }

    fn s5_1_abort_of_an_event_request(d) {
        d.enable();
        let id = d.submit(0, AdminCommand::AsyncEventRequest.command(0, 0));
        d.submit(0, AdminCommand::Abort { queue: 0, id }.command(0, 0));
        let (a, b) = (d.wait(0), d.wait(0));
        let of = |id| if a.id == id { a } else { b };
        assert!(of(id).status.is(Status::ABORT_REQUESTED));
    }

    fn s5_2_wrong_doorbells_are_events_once_until_the_log_is_read(d) {
        d.enable();
        let first = d.submit(0, AdminCommand::AsyncEventRequest.command(0, 0));
        d.write32(submission_doorbell(5, 0), 1);
        let entry = d.wait(0);
        assert_eq!((entry.id, AsyncEvent::from_bits(entry.result)), (first, AsyncEvent::INVALID_DOORBELL));
        let second = d.submit(0, AdminCommand::AsyncEventRequest.command(0, 0));
        d.write32(submission_doorbell(0, 0), 999);
        d.host.run_for(Duration::from_us(100));
        assert!(d.poll(0).is_none(), "masked until the log is read");
        let log = AdminCommand::GetLogPage {
            log: log::ERROR, specific: 0, retain_event: false, length: 4096, offset: 0,
        };
        let page = d.page(log, 0).unwrap();
        assert_eq!(log::ErrorEntry::parse(page.first_chunk().unwrap()).count, 2);
        d.write32(submission_doorbell(0, 0), 999);
        let entry = d.wait(0);
        let event = AsyncEvent::from_bits(entry.result);
        assert_eq!((entry.id, event), (second, AsyncEvent::INVALID_DOORBELL_VALUE));
    }

    fn s5_2_too_many_event_requests(d) {
        d.enable();
        for _ in 0..4 {
            d.submit(0, AdminCommand::AsyncEventRequest.command(0, 0));
        }
        assert!(d.run(0, AdminCommand::AsyncEventRequest.command(0, 0)).status.is(Status::EVENT_LIMIT));
    }

    fn s5_3_create_completion_queue_errors(d) {
        d.enable();
        assert!(d.create_cq(0, 8, 1).1.is(Status::INVALID_QUEUE_ID));
        assert!(d.create_cq(9, 8, 1).1.is(Status::INVALID_QUEUE_ID));
        assert!(d.create_cq(1, 1, 1).1.is(Status::INVALID_QUEUE_SIZE));
        assert!(d.create_cq(1, 257, 1).1.is(Status::INVALID_QUEUE_SIZE));
        assert!(d.create_cq(1, 8, 9).1.is(Status::INVALID_VECTOR));
        assert!(d.create_cq(1, 8, 1).1.is_success());
        assert!(d.create_cq(1, 8, 1).1.is(Status::INVALID_QUEUE_ID));
        let scattered = AdminCommand::CreateCompletionQueue {
            queue: 2, size: 7, contiguous: false, interrupts: false, vector: 0,
        };
        assert!(d.admin(scattered, 0, prp(0x10_0000)).status.is(Status::INVALID_FIELD));
    }

    fn s5_4_create_submission_queue_errors(d) {
        d.enable();
        assert!(d.create_sq(1, 8, 1, 0).1.is(Status::CQ_INVALID));
        assert!(d.create_sq(1, 8, 0, 0).1.is(Status::INVALID_QUEUE_ID));
        assert!(d.create_cq(1, 8, 1).1.is_success());
        assert!(d.create_sq(0, 8, 1, 0).1.is(Status::INVALID_QUEUE_ID));
        assert!(d.create_sq(1, 1, 1, 0).1.is(Status::INVALID_QUEUE_SIZE));
        let command = AdminCommand::CreateSubmissionQueue {
            queue: 1, size: 7, contiguous: true, priority: 0, completion_queue: 1,
        };
        assert!(d.admin(command, 0, prp(0x10_0010)).status.is(Status::PRP_OFFSET_INVALID));
    }

    fn s5_5_a_completion_queue_in_use_is_not_deleted(d) {
        let mut d = d.ready();
        let delete = AdminCommand::DeleteCompletionQueue { queue: 1 };
        assert!(d.admin(delete, 0, prp(0)).status.is(Status::INVALID_QUEUE_DELETION));
        assert!(d.admin(AdminCommand::DeleteSubmissionQueue { queue: 1 }, 0, prp(0)).status.is_success());
        assert!(d.admin(delete, 0, prp(0)).status.is_success());
        assert!(d.admin(delete, 0, prp(0)).status.is(Status::INVALID_QUEUE_ID));
    }

    fn s5_6_commands_of_a_deleted_queue_end_before_the_deletion(d) {
        let mut d = d.ready();
        for _ in 0..10 {
            let id = d.id();
            d.put(1, &IoCommand::Flush.command(id, 1));
        }
        d.ring(1);
        let delete = AdminCommand::DeleteSubmissionQueue { queue: 1 }.command(0, 0);
        assert!(d.run(0, delete).status.is_success());
        let mut ended = 0;
        while let Some(entry) = d.poll(1) {
            assert!(entry.status.is_success() || entry.status.is(Status::SQ_DELETED), "{entry}");
            ended += 1;
        }
        d.host.run_for(Duration::from_ms(1));
        assert!(d.poll(1).is_none(), "a completion after the deletion, behind {ended}");
    }

    fn s5_13_features_and_their_defaults(d) {
        d.enable();
        let get = |feature, select| AdminCommand::GetFeatures { feature, select, value: 0 };
        assert_eq!(d.admin(get(feature::VOLATILE_WRITE_CACHE, 0), 0, prp(0)).result, 1);
        let off = AdminCommand::SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, value: 0 };
        assert!(d.admin(off, 0, prp(0)).status.is_success());
        assert_eq!(d.admin(get(feature::VOLATILE_WRITE_CACHE, 0), 0, prp(0)).result, 0);
        assert_eq!(d.admin(get(feature::VOLATILE_WRITE_CACHE, 1), 0, prp(0)).result, 1);
        assert!(d.admin(get(0x7f, 0), 0, prp(0)).status.is(Status::INVALID_FIELD));
        let save = AdminCommand::SetFeatures { feature: feature::ARBITRATION, save: true, value: 0 };
        assert!(d.admin(save, 0, prp(0)).status.is(Status::NOT_SAVEABLE));
        assert!(d.admin(off, 1, prp(0)).status.is(Status::NOT_NAMESPACE_SPECIFIC));
    }

    fn s5_14_log_pages(d) {
        d.enable();
        let log = |log, offset| AdminCommand::GetLogPage {
            log, specific: 0, retain_event: true, length: 512, offset,
        };
        let smart = d.page(log(log::SMART, 0), ALL_NAMESPACES).unwrap();
        assert_eq!(log::SmartLog::parse(smart.first_chunk().unwrap()).available_spare, 100);
        let slot = d.page(log(log::FIRMWARE_SLOT, 0), 0).unwrap();
        assert_eq!(log::FirmwareSlotLog::parse(slot.first_chunk().unwrap()).revision, "1.0");
        let effects = d.page(log(log::COMMAND_EFFECTS, 1024), 0).unwrap();
        assert_eq!(effects[0] & 1, 1, "flush");
        assert!(d.page(log(0x77, 0), 0).unwrap_err().is(Status::INVALID_LOG_PAGE));
        assert!(d.page(log(log::SMART, 3), 0).unwrap_err().is(Status::INVALID_FIELD));
        assert!(d.page(log(log::SMART, 1 << 20), 0).unwrap_err().is(Status::INVALID_FIELD));
    }

    fn s5_15_identify(d) {
        d.enable();
        let identify = |cns| AdminCommand::Identify { cns, controller: 0 };
        let page = d.page(identify(cns::CONTROLLER), 0).unwrap();
        let controller = IdentifyController::parse(page.first_chunk().unwrap());
        assert_eq!((controller.model.as_str(), controller.namespaces), ("Example drive", 2));
        assert!(controller.volatile_write_cache);
        let page = d.page(identify(cns::NAMESPACE), 2).unwrap();
        let namespace = IdentifyNamespace::parse(page.first_chunk().unwrap());
        assert_eq!((namespace.size, namespace.current_format().block_shift), (8192, 9));
        let list = d.page(identify(cns::ACTIVE_NAMESPACES), 0).unwrap();
        assert_eq!(parse_namespaces(list.first_chunk().unwrap()), [1, 2]);
        let list = d.page(identify(cns::ACTIVE_NAMESPACES), 1).unwrap();
        assert_eq!(parse_namespaces(list.first_chunk().unwrap()), [2]);
        assert_eq!(d.page(identify(cns::NAMESPACE_DESCRIPTORS), 1).unwrap()[..2], [1, 8]);
        assert!(d.page(identify(cns::NAMESPACE), 3).unwrap_err().is(Status::INVALID_NAMESPACE));
        assert!(d.page(identify(0x7f), 0).unwrap_err().is(Status::INVALID_FIELD));
    }

    fn s5_19_a_detached_namespace_is_not_there(d) {
        let mut d = d.ready();
        let list = d.pages(1);
        d.host.write(list, &identify::emit_controllers(&[0])[..]);
        let attach = |select| AdminCommand::NamespaceAttachment { select };
        assert!(d.admin(attach(0), 1, prp(list)).status.is(Status::ALREADY_ATTACHED));
        assert!(d.admin(attach(1), 1, prp(list)).status.is_success());
        assert!(d.flush().is(Status::INVALID_NAMESPACE));
        assert!(d.admin(attach(0), 1, prp(list)).status.is_success());
        assert!(d.flush().is_success());
    }

    fn s5_20_what_a_namespace_gives_back_another_can_have(d) {
        let mut d = d.ready();
        let manage = |select| AdminCommand::NamespaceManagement { select };
        let list = d.pages(1);
        d.host.write(list, &identify::emit_controllers(&[0])[..]);
        let data = d.pages(1);
        let mut wanted = IdentifyNamespace { size: 64, capacity: 64, ..IdentifyNamespace::default() };
        d.host.write(data, &wanted.emit()[..]);
        // All of the media is allocated.
        let full = d.admin(manage(0), 0, prp(data)).status;
        assert!(full.is(Status::NAMESPACE_ID_UNAVAILABLE), "{full:?}");
        assert!(d.admin(manage(1), 1, prp(0)).status.is_success());
        assert!(d.flush().is(Status::INVALID_NAMESPACE));
        let page = d.page(AdminCommand::Identify { cns: cns::CONTROLLER, controller: 0 }, 0).unwrap();
        let controller = IdentifyController::parse(page.first_chunk().unwrap());
        assert!(controller.unallocated_capacity > 0);
        assert_eq!(controller.admin_commands & identify::OACS_NAMESPACES, identify::OACS_NAMESPACES);
        wanted.size = 1 << 60;
        wanted.capacity = 1 << 60;
        d.host.write(data, &wanted.emit()[..]);
        assert!(d.admin(manage(0), 0, prp(data)).status.is(Status::INSUFFICIENT_CAPACITY));
        (wanted.size, wanted.capacity) = (64, 64);
        d.host.write(data, &wanted.emit()[..]);
        let made = d.admin(manage(0), 0, prp(data));
        assert!(made.status.is_success() && made.result == 1, "{made:?}");
        assert!(d.flush().is(Status::INVALID_NAMESPACE), "it is attached to no controller yet");
        assert!(d.admin(AdminCommand::NamespaceAttachment { select: 0 }, 1, prp(list)).status.is_success());
        assert!(d.flush().is_success());
    }

    fn s5_15_a_controller_says_who_made_it_and_what_it_can(d) {
        d.enable();
        let page = d.page(AdminCommand::Identify { cns: cns::CONTROLLER, controller: 0 }, 0).unwrap();
        let controller = IdentifyController::parse(page.first_chunk().unwrap());
        assert_eq!(controller.firmware_updates, 0b011, "slot 1, which cannot be written");
        assert!(controller.warning_temperature > 0);
        assert!(controller.critical_temperature > controller.warning_temperature);
    }

    fn s5_21_number_of_queues(d) {
        d.enable();
        let set = |value| AdminCommand::SetFeatures { feature: feature::NUMBER_OF_QUEUES, save: false, value };
        assert_eq!(d.admin(set(0x00ff_00ff), 0, prp(0)).result, 0x0007_0007);
        assert!(d.admin(set(0xffff_0001), 0, prp(0)).status.is(Status::INVALID_FIELD));
        d.create_pair(1, 4);
        assert!(d.admin(set(1), 0, prp(0)).status.is(Status::SEQUENCE_ERROR));
    }

    fn s5_21_coalesced_interrupts_wait_for_more_or_for_time(d) {
        let mut d = d.ready();
        let value = Feature::InterruptCoalescing { threshold: 3, time: 1 }.to_bits();
        let set = AdminCommand::SetFeatures { feature: feature::INTERRUPT_COALESCING, save: false, value };
        assert!(d.admin(set, 0, prp(0)).status.is_success());
        d.host.interrupts();
        for _ in 0..4 {
            let id = d.id();
            d.put(1, &IoCommand::Flush.command(id, 1));
        }
        d.ring(1);
        d.host.run_for(Duration::from_us(50));
        assert_eq!(d.host.interrupts(), [1], "four completions, one interrupt");
        let id = d.id();
        d.put(1, &IoCommand::Flush.command(id, 1));
        d.ring(1);
        d.host.run_for(Duration::from_us(50));
        assert!(d.host.interrupts().is_empty());
        d.host.run_for(Duration::from_us(100));
        assert_eq!(d.host.interrupts(), [1]);
    }

    fn s5_23_format_changes_the_block_size_and_erases(d) {
        let mut d = d.ready();
        assert!(d.write_blocks(0, &pattern(512, 9)).is_success());
        let format = |format| AdminCommand::Format { format, secure_erase: 0, protection: 0 };
        assert!(d.admin(format(5), 1, prp(0)).status.is(Status::INVALID_FORMAT));
        assert!(d.admin(format(1), 1, prp(0)).status.is_success());
        let page = d.page(AdminCommand::Identify { cns: cns::NAMESPACE, controller: 0 }, 1).unwrap();
        assert_eq!(IdentifyNamespace::parse(page.first_chunk().unwrap()).size, 1024);
        let at = d.pages(1);
        let status = d.blocks(IoCommand::Read(Blocks::new(0, 1)), at, 4096);
        assert!(status.is_success());
        assert_eq!(d.bytes(at, 4096), vec![0; 4096]);
    }

    fn s5_1_abort_ends_a_command_that_has_not_begun(d) {
        let mut d = d.ready();
        let at = d.pages(32);
        let pointer = d.prp(at, 32 * 4096);
        let ids: Vec<u16> = (0..12).map(|_| d.id()).collect();
        for &id in &ids {
            d.put(1, &IoCommand::Read(Blocks::new(0, 256)).command(id, 1).with_data(pointer));
        }
        // Both doorbells one after the other: the abort either finds the last read queued behind eleven others, or is
        // too late.
        let abort = d.id();
        d.put(0, &AdminCommand::Abort { queue: 1, id: ids[11] }.command(abort, 0));
        d.ring(1);
        d.ring(0);
        let entry = d.wait(0);
        assert!(entry.id == abort && entry.status.is_success());
        let last = if entry.result & 1 == 0 { Status::ABORT_REQUESTED } else { Status::SUCCESS };
        for _ in &ids {
            let ended = d.wait(1);
            assert!(ended.status.is(if ended.id == ids[11] { last } else { Status::SUCCESS }), "{ended}");
        }
    }

    fn s5_14_the_error_log_tells_of_failed_commands_newest_first(d) {
        let mut d = d.ready();
        let read = |start| IoCommand::Read(Blocks::new(start, 1)).command(0, 1);
        let first = d.run(1, read(8192));
        let second = d.run(1, read(9000));
        assert!(first.status.is(Status::LBA_OUT_OF_RANGE) && second.status.is(Status::LBA_OUT_OF_RANGE));
        let log = AdminCommand::GetLogPage {
            log: log::ERROR, specific: 0, retain_event: false, length: 4096, offset: 0,
        };
        let page = d.page(log, 0).unwrap();
        let entries: Vec<log::ErrorEntry> =
            page.chunks_exact(64).take(3).map(|e| log::ErrorEntry::parse(e.first_chunk().unwrap())).collect();
        let told: Vec<(u64, u16, u16, u32)> =
            entries.iter().map(|e| (e.count, e.queue, e.command, e.namespace)).collect();
        assert_eq!(told[..2], [(2, 1, second.id, 1), (1, 1, first.id, 1)]);
        assert!(entries[0].status.is(Status::LBA_OUT_OF_RANGE));
        assert_eq!([entries[0].lba, entries[1].lba], [9000, 8192]);
        assert_eq!(entries[2].count, 0, "no more");
    }
}
