//! Registers, queues, pointers, interrupts and errors (sections 1, 3, 4, 7 and 9).

use devices::nvme::{Fault, FaultKind, NvmeParams};
use units::Duration;
use wire::nvme::admin::cns;
use wire::nvme::io::Blocks;
use wire::nvme::registers::{self as regs, MemoryBufferSize, completion_doorbell, submission_doorbell};
use wire::nvme::*;

use super::{Driver, pattern, prp};
use crate::clauses;

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
        // The admin queue registers are kept (7.3.2), the I/O queues are gone.
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

    fn s7_3_subsystem_reset_is_remembered(d) {
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
        // Data that begins within a page touches four pages.
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
        // The list begins two entries before the end of its page, so its second entry points to the next page.
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
