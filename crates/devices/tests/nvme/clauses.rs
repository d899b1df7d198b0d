//! One test for each clause, named by it (NVM Express Base Specification 1.4c), on both back-ends.

use devices::nvme::{Fault, FaultKind, NvmeParams};
use units::Duration;
use wire::nvme::admin::cns;
use wire::nvme::identify::parse_namespaces;
use wire::nvme::io::{Blocks, DatasetRange};
use wire::nvme::registers::{self as regs, MemoryBufferSize, completion_doorbell, submission_doorbell};
use wire::nvme::*;

use super::driver::Driver;

macro_rules! clauses {
    ($( $(#[$attribute:meta])* fn $name:ident($driver:ident) $body:block )*) => {
        $( $(#[$attribute])* #[allow(unused_mut)] fn $name(mut $driver: Driver) $body )*
        mod on_bench {
            $( #[test] fn $name() { super::$name(super::Driver::on_bench(super::NvmeParams::example())); } )*
        }
        mod on_fabric {
            $( #[test] fn $name() { super::$name(super::Driver::on_fabric(super::NvmeParams::example())); } )*
        }
    };
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed).collect()
}

fn prp(first: u64) -> DataPointer {
    DataPointer::Prp { first, second: 0 }
}

clauses! {
    fn s3_1_1_capabilities_name_what_there_is(d) {
        let bits = u64::from(d.read32(regs::CAP)) | u64::from(d.read32(regs::CAP + 4)) << 32;
        let capabilities = Capabilities::from_bits(bits);
        assert!(capabilities.nvm_command_set && capabilities.contiguous_queues);
        assert_eq!(capabilities.max_queue_entries, 255);
        assert_eq!(d.read32(regs::VS), regs::VERSION_1_4);
    }

    fn s3_1_5_enable_makes_ready_and_disable_resets(d) {
        assert!(!d.status().ready);
        d.enable();
        d.create_pair(1, 8);
        d.disable();
        assert!(!d.status().ready);
        // The admin queue registers stay (7.3.2), I/O queues are gone.
        assert_ne!(d.read32(regs::AQA), 0);
        d.enable();
        let gone = AdminCommand::DeleteSubmissionQueue { queue: 1 };
        assert!(d.admin(gone, 0, prp(0)).status.is(Status::INVALID_QUEUE_ID));
    }

    fn s3_1_5_impossible_configuration_is_fatal(d) {
        d.enable_with(Configuration { page_shift: 15, ..Configuration::enabled() });
        assert!(d.status().fatal && !d.status().ready);
        d.disable();
        d.enable();
        assert!(!d.status().fatal);
    }

    fn s3_1_5_shutdown_flushes_and_completes(d) {
        let mut d = d.ready();
        let data = pattern(4096, 1);
        assert!(d.write_blocks(0, &data).is_success());
        d.write32(regs::CC, Configuration { shutdown: 1, ..Configuration::enabled() }.to_bits());
        d.host.run_for(Duration::from_ms(2));
        assert_eq!(d.status().shutdown, 2);
        d.control.power_cut().unwrap();
        d.host.reset();
        let mut d = d.ready();
        assert_eq!(d.read_blocks(0, 4096).unwrap(), data);
    }

    fn s3_1_4_subsystem_reset_is_remembered(d) {
        d.enable();
        d.write32(regs::NSSR, regs::SUBSYSTEM_RESET);
        assert!(!d.status().ready && d.status().subsystem_reset);
        d.write32(regs::CSTS, 1 << 4);
        assert!(!d.status().subsystem_reset);
    }

    fn s4_1_queues_wrap_and_phase_inverts(d) {
        let mut d = d.ready();
        for _ in 0..40 {
            assert!(d.flush().is_success());
        }
    }

    fn s4_1_a_full_completion_queue_is_not_overwritten(d) {
        d.enable();
        d.create_pair(2, 4);
        // Seven completions for a queue that holds three.
        let (_, status) = d.create_cq(1, 4, 1);
        assert!(status.is_success());
        let (base, status) = d.create_sq(1, 16, 2, 0);
        assert!(status.is_success());
        for n in 0..7u16 {
            d.host.write(base + u64::from(n) * 64, &IoCommand::Flush.command(100 + n, 1).emit());
        }
        d.write32(submission_doorbell(1, 0), 7);
        d.host.run_for(Duration::from_ms(1));
        let cq = d.pairs[&2].cq;
        let mut seen = Vec::new();
        for round in 0..7u32 {
            d.host.run_for(Duration::from_us(50));
            let bytes = d.bytes(cq + u64::from(round % 4) * 16, 16);
            let entry = CompletionEntry::parse(bytes.first_chunk().unwrap());
            assert_eq!(entry.phase, round / 4 % 2 == 0, "entry {round}");
            seen.push(entry.id);
            d.write32(completion_doorbell(2, 0), (round + 1) % 4);
        }
        seen.sort_unstable();
        assert_eq!(seen, (100..107).collect::<Vec<_>>());
    }

    fn s4_2_an_identifier_in_use_conflicts(d) {
        let mut d = d.ready();
        d.control.inject(Fault { queue: Some(1), opcode: None, after: 0, kind: FaultKind::Hang });
        d.put(1, &IoCommand::Flush.command(7, 1));
        d.put(1, &IoCommand::Flush.command(7, 1));
        d.ring(1);
        assert!(d.wait(1).status.is(Status::ID_CONFLICT));
    }

    fn s4_3_prp_offsets(d) {
        let mut d = d.ready();
        let data = pattern(3 * 4096, 3);
        // Data that begins within a page: four pages are touched.
        let at = d.pages(4) + 0x204;
        d.host.write(at, &data);
        assert!(d.blocks(IoCommand::Write(Blocks::new(8, 24)), at, 3 * 4096).is_success());
        assert_eq!(d.read_blocks(8, 3 * 4096).unwrap(), data);
        let page = d.pages(2);
        let bad = |first, second| {
            let pointer = DataPointer::Prp { first, second };
            IoCommand::Read(Blocks::new(0, 16)).command(0, 1).with_data(pointer)
        };
        assert!(d.run(1, bad(page + 2, page)).status.is(Status::PRP_OFFSET_INVALID));
        assert!(d.run(1, bad(page, page + 0x800)).status.is(Status::PRP_OFFSET_INVALID));
    }

    fn s4_3_prp_lists_chain_across_pages(d) {
        let mut d = d.ready();
        let data = pattern(8 * 4096, 4);
        let at = d.pages(8);
        d.host.write(at, &data);
        // The list begins two entries before the end of its page: the second of them points on.
        let (first, next) = (d.pages(1) + 4096 - 16, d.pages(1));
        d.host.write(first, &(at + 4096).to_le_bytes());
        d.host.write(first + 8, &next.to_le_bytes());
        for n in 2..8u64 {
            d.host.write(next + (n - 2) * 8, &(at + n * 4096).to_le_bytes());
        }
        let pointer = DataPointer::Prp { first: at, second: first };
        let write = IoCommand::Write(Blocks::new(0, 64)).command(0, 1).with_data(pointer);
        assert!(d.run(1, write).status.is_success());
        assert_eq!(d.read_blocks(0, 8 * 4096).unwrap(), data);
    }

    fn s4_4_sgl_segments_and_bit_buckets(d) {
        let mut d = d.ready();
        let data = pattern(4096, 5);
        assert!(d.write_blocks(0, &data).is_success());
        let (at, list) = (d.pages(1), d.pages(2));
        let block = |address, length| SglDescriptor { address, length, kind: SglKind::DataBlock };
        let bucket = SglDescriptor { address: 0, length: 1000, kind: SglKind::BitBucket };
        let last = SglDescriptor { address: list + 4096, length: 32, kind: SglKind::LastSegment };
        for (n, part) in [block(at + 1, 96), bucket, last].iter().enumerate() {
            d.host.write(list + 16 * n as u64, &part.emit());
        }
        for (n, part) in [block(at + 97, 1000), block(at + 1097, 2000)].iter().enumerate() {
            d.host.write(list + 4096 + 16 * n as u64, &part.emit());
        }
        let descriptor = SglDescriptor { address: list, length: 48, kind: SglKind::Segment };
        let sgl = |descriptor| DataPointer::Sgl { descriptor, metadata_segment: false };
        let read = IoCommand::Read(Blocks::new(0, 8)).command(0, 1);
        assert_eq!(d.run(1, read.with_data(sgl(descriptor))).status, Status::SUCCESS);
        assert_eq!(d.bytes(at + 1, 96), data[..96]);
        assert_eq!(d.bytes(at + 97, 3000), data[1096..4096]);
        let short = block(at, 4000);
        assert!(d.run(1, read.with_data(sgl(short))).status.is(Status::SGL_LENGTH_INVALID));
        let odd = SglDescriptor { length: 40, ..descriptor };
        assert!(d.run(1, read.with_data(sgl(odd))).status.is(Status::INVALID_SGL_SEGMENT));
        let unknown = SglDescriptor { kind: SglKind::Other(0x40), ..block(at, 4096) };
        assert!(d.run(1, read.with_data(sgl(unknown))).status.is(Status::SGL_TYPE_INVALID));
    }

    fn s4_7_submission_queue_in_the_memory_buffer(d) {
        d.enable();
        assert_eq!(d.read32(regs::CMBSZ), 0, "not before CRE");
        let base = 0xd000_0000u64;
        d.write64(0x50, base | 3);
        let size = MemoryBufferSize::from_bits(d.read32(regs::CMBSZ));
        assert!(size.submission_queues && size.bytes() == 64 << 10);
        let (cq, status) = d.create_cq(1, 8, 1);
        assert!(status.is_success());
        let command = AdminCommand::CreateSubmissionQueue {
            queue: 1, size: 7, contiguous: true, priority: 0, completion_queue: 1,
        };
        assert!(d.admin(command, 0, prp(base)).status.is_success());
        d.host.bar_write(0, 2, 0, &IoCommand::Flush.command(77, 1).emit());
        d.write32(submission_doorbell(1, 0), 1);
        d.host.run_for(Duration::from_us(100));
        let entry = CompletionEntry::parse(d.bytes(cq, 16).first_chunk().unwrap());
        assert!(entry.phase && entry.id == 77 && entry.status.is_success());
    }

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

    fn s5_22_format_changes_the_block_size_and_erases(d) {
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

    fn s6_invalid_opcodes_fields_and_namespaces(d) {
        let mut d = d.ready();
        assert!(d.run(1, Command::new(0x7c, 0, 1, [0; 6])).status.is(Status::INVALID_OPCODE));
        assert!(d.run(0, Command::new(0x7c, 0, 0, [0; 6])).status.is(Status::INVALID_OPCODE));
        let read = IoCommand::Read(Blocks::new(0, 1));
        assert!(d.run(1, read.command(0, 3)).status.is(Status::INVALID_NAMESPACE));
        assert!(d.run(1, read.command(0, 0)).status.is(Status::INVALID_NAMESPACE));
        let fused = Command { fused: 1, ..read.command(0, 1) };
        assert!(d.run(1, fused).status.is(Status::INVALID_FIELD));
        let reserved = Command { pointer_kind: 3, ..read.command(0, 1) };
        assert!(d.run(1, reserved).status.is(Status::INVALID_FIELD));
        let protected = Blocks { protection: 1, ..Blocks::new(0, 1) };
        assert!(d.run(1, IoCommand::Read(protected).command(0, 1)).status.is(Status::INVALID_PROTECTION));
        let sgl = Command { pointer_kind: 1, ..AdminCommand::Identify { cns: 1, controller: 0 }.command(0, 0) };
        assert!(d.run(0, sgl).status.is(Status::INVALID_FIELD));
    }

    fn s6_6_compare(d) {
        let mut d = d.ready();
        let data = pattern(1024, 6);
        assert!(d.write_blocks(5, &data).is_success());
        let at = d.pages(1);
        d.host.write(at, &data);
        let compare = IoCommand::Compare(Blocks::new(5, 2));
        assert!(d.blocks(compare, at, 1024).is_success());
        d.host.write(at + 700, &[!data[700]]);
        assert!(d.blocks(compare, at, 1024).is(Status::COMPARE_FAILURE));
    }

    fn s6_7_deallocated_blocks_read_as_zeroes(d) {
        let mut d = d.ready();
        assert!(d.write_blocks(0, &pattern(4096, 7)).is_success());
        let at = d.pages(1);
        let ranges = [(1u64, 2u32), (5, 1)];
        for (n, (start, length)) in ranges.into_iter().enumerate() {
            d.host.write(at + 16 * n as u64, &DatasetRange { attributes: 0, length, start }.emit());
        }
        let deallocate = IoCommand::DatasetManagement { ranges: 1, deallocate: true };
        assert!(d.blocks(deallocate, at, 32).is_success());
        let mut expected = pattern(4096, 7);
        expected[512..1536].fill(0);
        expected[2560..3072].fill(0);
        assert_eq!(d.read_blocks(0, 4096).unwrap(), expected);
        d.host.write(at, &DatasetRange { attributes: 0, length: 2, start: 8191 }.emit());
        assert!(d.blocks(deallocate, at, 32).is(Status::LBA_OUT_OF_RANGE));
    }

    fn s6_9_reads_beyond_the_end_and_the_transfer_limit(d) {
        let mut d = d.ready();
        let at = d.pages(1);
        let read = |start, count| IoCommand::Read(Blocks::new(start, count));
        assert!(d.blocks(read(8192, 1), at, 512).is(Status::LBA_OUT_OF_RANGE));
        assert!(d.blocks(read(8191, 2), at, 1024).is(Status::LBA_OUT_OF_RANGE));
        assert!(d.blocks(read(u64::MAX, 1), at, 512).is(Status::LBA_OUT_OF_RANGE));
        assert!(d.blocks(read(8191, 1), at, 512).is_success());
        assert!(d.blocks(read(0, 257), at, 512).is(Status::INVALID_FIELD), "MDTS is 128 KiB");
    }

    fn s6_8_what_flush_acknowledged_survives_a_power_cut(d) {
        let mut d = d.ready();
        let data = pattern(16384, 8);
        assert!(d.write_blocks(0, &data).is_success());
        assert!(d.flush().is_success());
        assert!(d.write_blocks(100, &pattern(16384, 9)).is_success());
        d.control.power_cut().unwrap();
        d.host.reset();
        let mut d = d.ready();
        assert_eq!(d.read_blocks(0, 16384).unwrap(), data);
    }

    fn s6_15_forced_writes_survive_without_flush(d) {
        let mut d = d.ready();
        let (at, data) = (d.pages(1), pattern(4096, 10));
        d.host.write(at, &data);
        let blocks = Blocks { force_unit_access: true, ..Blocks::new(16, 8) };
        assert!(d.blocks(IoCommand::Write(blocks), at, 4096).is_success());
        d.control.power_cut().unwrap();
        d.host.reset();
        let mut d = d.ready();
        assert_eq!(d.read_blocks(16, 4096).unwrap(), data);
    }

    fn s6_17_write_zeroes(d) {
        let mut d = d.ready();
        assert!(d.write_blocks(0, &pattern(2048, 11)).is_success());
        let zeroes = IoCommand::WriteZeroes { blocks: Blocks::new(1, 2), deallocate: false };
        assert!(d.run(1, zeroes.command(0, 1)).status.is_success());
        let mut expected = pattern(2048, 11);
        expected[512..1536].fill(0);
        assert_eq!(d.read_blocks(0, 2048).unwrap(), expected);
    }

    fn s7_5_every_completion_interrupts_its_queues_vector(d) {
        d.enable();
        for queue in 1..=3 {
            d.create_pair(queue, 8);
        }
        d.host.interrupts();
        for queue in [2, 3, 1, 2] {
            assert!(d.run(queue, IoCommand::Flush.command(0, 1)).status.is_success());
        }
        d.host.run_for(Duration::from_us(10));
        assert_eq!(d.host.interrupts(), [2, 3, 1, 2]);
    }

    fn s9_5_a_controller_that_failed_works_again_after_a_reset(d) {
        let mut d = d.ready();
        d.control.inject(Fault { queue: Some(1), opcode: None, after: 0, kind: FaultKind::Fatal });
        d.submit(1, IoCommand::Flush.command(0, 1));
        d.host.run_for(Duration::from_us(100));
        assert!(d.status().fatal && d.poll(1).is_none());
        d.disable();
        let mut d = d.ready();
        assert!(!d.status().fatal);
        assert!(d.flush().is_success());
    }

    fn s9_faulty_completions_are_as_told(d) {
        let mut d = d.ready();
        let fault = |kind| Fault { queue: Some(1), opcode: None, after: 0, kind };
        d.control.inject(fault(FaultKind::DropCompletion));
        d.submit(1, IoCommand::Flush.command(0, 1));
        d.host.run_for(Duration::from_us(100));
        assert!(d.poll(1).is_none());
        d.control.inject(fault(FaultKind::Fail(Status::READ_ERROR)));
        assert!(d.flush().is(Status::READ_ERROR));
        d.host.interrupts();
        d.control.inject(fault(FaultKind::DropInterrupt));
        assert!(d.flush().is_success());
        assert!(d.host.interrupts().is_empty());
    }
}

#[test]
fn s1_4_two_ports_share_their_namespaces() {
    let params = NvmeParams { ports: 2, ..NvmeParams::example() };
    let mut d = Driver::on_bench(params).ready();
    let data = pattern(4096, 12);
    assert!(d.write_blocks(0, &data).is_success());
    d.function = 1;
    assert!(!d.status().ready, "the other controller has a life of its own");
    let mut d = d.ready();
    assert_eq!(d.read_blocks(0, 4096).unwrap(), data);
    let page = d.page(AdminCommand::Identify { cns: cns::CONTROLLER, controller: 0 }, 0).unwrap();
    let controller = IdentifyController::parse(page.first_chunk().unwrap());
    assert_eq!((controller.controller, controller.multi_path), (1, 3));
}

#[test]
fn s4_13_weighted_round_robin_prefers_as_weighted() {
    let params = NvmeParams {
        timing: devices::nvme::ControllerTiming { commands_in_hand: 1, ..NvmeParams::example().timing },
        ..NvmeParams::example()
    };
    let mut d = Driver::on_bench(params);
    d.enable_with(Configuration { arbitration: 1, ..Configuration::enabled() });
    // One command at a time; high three to low one.
    let value = Feature::Arbitration { burst: 0, low: 0, medium: 0, high: 2 }.to_bits();
    let set = AdminCommand::SetFeatures { feature: feature::ARBITRATION, save: false, value };
    assert!(d.admin(set, 0, prp(0)).status.is_success());
    let (cq, status) = d.create_cq(1, 32, 1);
    assert!(status.is_success());
    for (queue, priority) in [(1, 3), (2, 1)] {
        let (base, status) = d.create_sq(queue, 16, 1, priority);
        assert!(status.is_success());
        for n in 0..8u16 {
            d.host.write(base + u64::from(n) * 64, &IoCommand::Flush.command(n, 1).emit());
        }
    }
    d.write32(submission_doorbell(1, 0), 8);
    d.write32(submission_doorbell(2, 0), 8);
    d.host.run_for(Duration::from_ms(2));
    let queues: Vec<u16> = (0..8)
        .map(|n| CompletionEntry::parse(d.bytes(cq + n * 16, 16).first_chunk().unwrap()).submission_queue)
        .collect();
    // The first doorbell finds the low queue alone.
    assert_eq!(queues[1..8].iter().filter(|&&queue| queue == 2).count(), 6, "{queues:?}");
}
