//! The NVM command set (section 6).

use wire::nvme::io::{Blocks, DatasetRange};
use wire::nvme::*;

use super::{Driver, pattern, prp};
use crate::clauses;

clauses! {
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

    fn s6_1_namespaces_are_apart(d) {
        let mut d = d.ready();
        let (one, two) = (pattern(4096, 21), pattern(4096, 22));
        assert!(d.write_blocks(8184, &one).is_success());
        let at = d.pages(1);
        d.host.write(at, &two);
        let write = IoCommand::Write(Blocks::new(0, 8)).command(0, 2).with_data(prp(at));
        assert!(d.run(1, write).status.is_success());
        assert_eq!(d.read_blocks(8184, 4096).unwrap(), one, "the last of the first");
        assert_eq!(d.read_blocks(0, 4096).unwrap(), vec![0; 4096]);
        let back = d.pages(1);
        let read = IoCommand::Read(Blocks::new(0, 8)).command(0, 2).with_data(prp(back));
        assert!(d.run(1, read).status.is_success());
        assert_eq!(d.bytes(back, 4096), two);
    }

    fn s6_7_hints_change_nothing_and_256_ranges_are_taken(d) {
        let mut d = d.ready();
        let data = pattern(16384, 23);
        assert!(d.write_blocks(0, &data).is_success());
        let at = d.pages(1);
        for n in 0..256u64 {
            // Every other block of the first 32, and then nothing.
            let (start, length) = if n < 16 { (2 * n, 1) } else { (100, 0) };
            d.host.write(at + 16 * n, &DatasetRange { attributes: 0, length, start }.emit());
        }
        let hints = IoCommand::DatasetManagement { ranges: 255, deallocate: false };
        assert!(d.blocks(hints, at, 4096).is_success());
        assert_eq!(d.read_blocks(0, 16384).unwrap(), data);
        let deallocate = IoCommand::DatasetManagement { ranges: 255, deallocate: true };
        assert!(d.blocks(deallocate, at, 4096).is_success());
        let mut expected = data;
        expected.chunks_mut(512).step_by(2).for_each(|block| block.fill(0));
        assert_eq!(d.read_blocks(0, 16384).unwrap(), expected);
    }

    fn s6_15_writes_beyond_the_end_change_nothing(d) {
        let mut d = d.ready();
        let (at, data) = (d.pages(1), pattern(512, 24));
        assert!(d.write_blocks(8191, &data).is_success());
        d.host.write(at, &[0xee; 1024]);
        let status = d.blocks(IoCommand::Write(Blocks::new(8191, 2)), at, 1024);
        assert!(status.is(Status::LBA_OUT_OF_RANGE));
        assert_eq!(d.read_blocks(8191, 512).unwrap(), data);
    }
}
