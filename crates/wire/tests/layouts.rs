//! Which bits say what, in numbers that the specifications give: what `parse` and `emit` agree on between them proves none of it.

use std::net::{IpAddr, Ipv4Addr};

use wire::dma_engine::Test;
use wire::ethernet::MacAddr;
use wire::ip::checksum::Sum;
use wire::ip::dissect::Flow;
use wire::ip::{Ipv4Header, protocol};
use wire::nic::descriptor::{inline_address, of_inline_address};
use wire::nvme::admin::AdminCommand as Admin;
use wire::nvme::io::{Blocks, IoCommand as Io};
use wire::nvme::registers::{Capabilities, MemoryBufferSize};
use wire::nvme::status::Status;
use wire::nvme::{Command, Feature, SubmissionRing, log};
use wire::pcap::{self, Contents, PcapngWriter};
use wire::pcie::config::{BarKind, ConfigSpace, PcieParams, SriovParams, aer, examples};
use wire::pcie::dllp::{FlowControl, FlowControlKind, Scale};
use wire::pcie::frame;
use wire::pcie::link::Framing;
use wire::pcie::{Dllp, FlowClass, Generation, Sequence, Width};
use wire::virtio::Ring;

/// NVM Express 1.4, section 5: opcode, then doublewords 10 to 13.
#[test]
fn admin_commands_stand_as_the_specification_has_them() {
    let log = |length, offset| Admin::GetLogPage { log: 2, specific: 1, retain_event: true, length, offset };
    let create = |contiguous, priority| Admin::CreateSubmissionQueue {
        queue: 2,
        size: 0x7f,
        contiguous,
        priority,
        completion_queue: 3,
    };
    for (admin, opcode, words) in [
        (Admin::DeleteSubmissionQueue { queue: 9 }, 0x00, [9, 0, 0, 0]),
        (create(true, 2), 0x01, [0x007f_0002, 0x0003_0005, 0, 0]),
        (create(false, 3), 0x01, [0x007f_0002, 0x0003_0006, 0, 0]),
        (log(512, 0x0000_0001_0000_0010), 0x02, [0x007f_8102, 0, 0x10, 1]),
        // More than 2^16 doublewords: the upper half of their number.
        (log(0x0008_0004, 0), 0x02, [0x0000_8102, 2, 0, 0]),
        (Admin::DeleteCompletionQueue { queue: 9 }, 0x04, [9, 0, 0, 0]),
        (
            Admin::CreateCompletionQueue {
                queue: 3,
                size: 0x3f,
                contiguous: true,
                interrupts: true,
                vector: 5,
            },
            0x05,
            [0x003f_0003, 0x0005_0003, 0, 0],
        ),
        (
            Admin::CreateCompletionQueue {
                queue: 3,
                size: 1,
                contiguous: true,
                interrupts: false,
                vector: 0,
            },
            0x05,
            [0x0001_0003, 1, 0, 0],
        ),
        (Admin::Identify { cns: 0x13, controller: 2 }, 0x06, [0x0002_0013, 0, 0, 0]),
        (Admin::Abort { queue: 1, id: 0x1234 }, 0x08, [0x1234_0001, 0, 0, 0]),
        (
            Admin::SetFeatures { feature: 7, save: true, value: 0x0003_0004 },
            0x09,
            [0x8000_0007, 0x0003_0004, 0, 0],
        ),
        (Admin::GetFeatures { feature: 7, select: 3, value: 1 }, 0x0a, [0x0000_0307, 1, 0, 0]),
        (Admin::AsyncEventRequest, 0x0c, [0; 4]),
        (Admin::NamespaceManagement { select: 1 }, 0x0d, [1, 0, 0, 0]),
        (Admin::NamespaceAttachment { select: 1 }, 0x15, [1, 0, 0, 0]),
        (Admin::Format { format: 1, secure_erase: 2, protection: 0x11 }, 0x80, [0x0000_0511, 0, 0, 0]),
    ] {
        let command = admin.command(7, 1);
        assert_eq!((command.opcode, &command.words[..4]), (opcode, &words[..]), "{admin:?}");
        let entry = Command::parse(&command.emit());
        assert_eq!(Admin::parse(&entry), Some(admin));
    }
}

/// NVM Express 1.4, section 6.
#[test]
fn io_commands_stand_as_the_specification_has_them() {
    let blocks = Blocks { start: 0x0000_0001_2345_6789, count: 7, force_unit_access: true, protection: 0xa };
    let words = [0x2345_6789, 1, 0x6800_0007];
    let zeroes = |deallocate| Io::WriteZeroes { blocks, deallocate };
    let manage = |deallocate| Io::DatasetManagement { ranges: 3, deallocate };
    for (io, opcode, words) in [
        (Io::Flush, 0x00, [0; 3]),
        (Io::Write(blocks), 0x01, words),
        (Io::Read(blocks), 0x02, words),
        (Io::Compare(blocks), 0x05, words),
        (zeroes(false), 0x08, words),
        (zeroes(true), 0x08, [words[0], words[1], words[2] | 1 << 25]),
        (manage(false), 0x09, [3, 0, 0]),
        (manage(true), 0x09, [3, 4, 0]),
    ] {
        let command = io.command(7, 1);
        assert_eq!((command.opcode, &command.words[..3]), (opcode, &words[..]), "{io:?}");
        assert_eq!(Io::parse(&Command::parse(&command.emit())), Some(io));
    }
}

/// NVM Express 1.4, section 5.21.1: identifier and doubleword 11.
#[test]
fn features_stand_as_the_specification_has_them() {
    let vector = |no_coalescing| Feature::InterruptVector { vector: 3, no_coalescing };
    let events = |namespaces, firmware| Feature::AsyncEvents { health: 0x1f, namespaces, firmware };
    for (feature, id, value) in [
        (Feature::Arbitration { burst: 5, low: 1, medium: 2, high: 3 }, 0x01, 0x0302_0105),
        (Feature::PowerManagement { state: 4, workload: 1 }, 0x02, 0x24),
        (Feature::VolatileWriteCache { enabled: true }, 0x06, 1),
        (Feature::NumberOfQueues { submission: 7, completion: 8 }, 0x07, 0x0008_0007),
        (Feature::InterruptCoalescing { threshold: 9, time: 2 }, 0x08, 0x0209),
        (vector(true), 0x09, 0x0001_0003),
        (vector(false), 0x09, 3),
        (Feature::WriteAtomicity { disable_normal: true }, 0x0a, 1),
        (events(true, false), 0x0b, 0x011f),
        (events(false, true), 0x0b, 0x021f),
    ] {
        assert_eq!((feature.id(), feature.to_bits()), (id, value), "{feature:?}");
        assert_eq!(Feature::from_bits(id, value), Some(feature));
    }
    assert_eq!(Feature::from_bits(0x05, 0), None);
}

/// NVM Express 1.4: completion status (4.6.1), the memory buffer's size (3.1.12), command effects (5.14.1.5).
#[test]
fn what_controllers_answer_stands_as_the_specification_has_it() {
    let status = Status { kind: 2, code: 0x81, retry_delay: 1, more: false, do_not_retry: true };
    assert_eq!(status.to_bits(), 0x4a81);
    assert_eq!(Status::from_bits(0x4a81), status);
    assert_eq!(Status::from_bits(0x2100), Status { more: true, kind: 1, ..Status::default() });
    // Units of 4 KiB, 64 KiB, 1 MiB.
    let size = |unit| MemoryBufferSize { unit, size: 3, ..MemoryBufferSize::default() };
    assert_eq!([0, 1, 2].map(|unit| size(unit).bytes()), [3 << 12, 3 << 16, 3 << 20]);
    assert_eq!(size(2).to_bits(), 0x3200);
    let effects = log::command_effects(&[(0x06, 1)], &[(0x02, 1), (0x01, 3)]);
    let set: Vec<(usize, u8)> = (0..).zip(effects.iter().copied()).filter(|&(_, byte)| byte != 0).collect();
    assert_eq!(set, [(4 * 6, 1), (1024 + 4, 3), (1024 + 8, 1)]);
}

#[test]
fn a_submission_ring_takes_only_heads_of_what_it_has_submitted() {
    let mut ring = SubmissionRing::new(4);
    assert_eq!([ring.push(), ring.push(), ring.push(), ring.push()], [Some(0), Some(1), Some(2), None]);
    assert!(ring.completed(2) && ring.free() == 2);
    // Back to what has been completed, and behind the end.
    assert!(!ring.completed(1) && !ring.completed(4) && ring.free() == 2);
    assert!(ring.completed(3) && ring.free() == 3);
    assert_eq!([ring.push(), ring.push()], [Some(3), Some(0)]);
    assert!(!ring.completed(2) && ring.completed(1) && ring.free() == 3);
}

/// PCIe Base 5.0, section 3.5.1: the first byte of each flow control DLLP; 3.4.2: where its counts are.
#[test]
fn flow_control_stands_as_the_specification_has_it() {
    let kinds =
        [(FlowControlKind::Init1, 0x40), (FlowControlKind::Update, 0x80), (FlowControlKind::Init2, 0xc0)];
    let classes = [(FlowClass::Posted, 0x00), (FlowClass::NonPosted, 0x10), (FlowClass::Completion, 0x20)];
    for ((kind, first), (class, second)) in
        kinds.into_iter().flat_map(|kind| classes.map(|class| (kind, class)))
    {
        let (header_scale, data_scale) = (Scale::By1, Scale::By4);
        let said = FlowControl {
            kind,
            class,
            virtual_channel: 3,
            header_scale,
            header: 0xb5,
            data_scale,
            data: 0x9ac,
        };
        let bytes = Dllp::FlowControl(said).to_bytes();
        // Scale, header count, scale, data count: 01 10110101 10 100110101100.
        assert_eq!(bytes[..4], [first | second | 3, 0x6d, 0x69, 0xac], "{said:?}");
        assert_eq!(Dllp::parse(&bytes), Ok(Dllp::FlowControl(said)));
    }
}

/// PCIe Base 5.0, section 4.2.2.3.1: an STP token has even parity over length, its CRC and the parity bit.
#[test]
fn a_token_has_even_parity() {
    for payload in [0, 4, 8, 64, 1024] {
        let mut bytes = Vec::new();
        frame::emit_tlp(Framing::Tokens, Sequence::new(0xabc), &vec![0; 12 + payload], &mut bytes);
        assert_eq!(bytes[0] & 0xf, 0xf);
        let covered = [bytes[0] & 0xf0, bytes[1], bytes[2] & 0xf0];
        assert_eq!(
            covered.iter().map(|byte| byte.count_ones()).sum::<u32>() % 2,
            0,
            "{payload}: {bytes:02x?}"
        );
        let length = u32::from(bytes[0] >> 4) | u32::from(bytes[1] & 0x7f) << 4;
        // Header, data, and two doublewords of token and LCRC.
        assert_eq!(length as usize, (12 + payload) / 4 + 2);
        assert_eq!((bytes[2] & 0xf, bytes[3]), (0xa, 0xbc));
    }
}

/// PCIe Base 5.0, section 7.8.4: what of AER software may change, and how it begins.
#[test]
fn error_reporting_stands_as_the_specification_has_it() {
    let mut root = examples::root_port();
    let at = root.aer_offset().expect("it has one");
    let begin = |space: &ConfigSpace, offset| space.dword(at + offset);
    // Severity: data link, surprise down, flow control, overflow, malformed, internal. Masked: internal; advisory, internal, log.
    assert_eq!(begin(&root, 0x08), 1 << 22);
    assert_eq!(begin(&root, 0x0c), 1 << 4 | 1 << 5 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 22);
    assert_eq!(begin(&root, 0x14), 0xe000);
    assert_eq!(begin(&root, 0x18), 0, "no ECRC");
    for (offset, writable) in [(0x08, 0x007f_f030), (0x0c, 0x007f_f030), (0x14, 0xf1c1), (0x18, 0), (0x2c, 7)]
    {
        for value in [u32::MAX, 0] {
            root.write(at + offset, value, 0xf);
            assert_eq!(begin(&root, offset), value & writable, "{offset:#x}");
        }
    }
    for (offset, bits) in [(0x04, 0x007f_f030), (0x10, 0xf1c1), (0x30, 0x7f)] {
        root.update(at + offset, 0, bits);
        root.write(at + offset, 0, 0xf);
        assert_eq!(begin(&root, offset), bits, "{offset:#x}: zeros clear nothing");
        root.write(at + offset, bits, 0xf);
        assert_eq!(begin(&root, offset), 0, "{offset:#x}: ones clear");
    }
    let with_ecrc = ConfigSpace::endpoint(1, 2, 0x02_0000)
        .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
        .aer()
        .ecrc()
        .build()
        .expect("everything has its place");
    let at = with_ecrc.aer_offset().expect("it has one");
    let mut with_ecrc = with_ecrc;
    assert_eq!(with_ecrc.dword(at + 0x18), 1 << 5 | 1 << 7, "capable");
    with_ecrc.write(at + 0x18, u32::MAX, 0xf);
    assert_eq!(with_ecrc.dword(at + 0x18), 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8, "and enabled");
    assert!(with_ecrc.generates_ecrc() && with_ecrc.checks_ecrc());
    assert_eq!(aer::LEN, 0x38);
}

#[test]
fn bars_of_virtual_functions_have_their_places() {
    let wide = Some((BarKind::Memory64 { prefetchable: true }, 1 << 16));
    let narrow = Some((BarKind::Memory32 { prefetchable: false }, 1 << 12));
    let io = Some((BarKind::Io, 32));
    for (bars, fits) in [
        ([wide, None, wide, None, narrow, None], true),
        ([narrow, narrow, None, None, wide, None], true),
        ([wide, narrow, None, None, None, None], false),
        ([None, None, None, None, None, wide], false),
        ([None, None, None, None, None, narrow], true),
        ([io, None, None, None, None, None], false),
    ] {
        let space = ConfigSpace::endpoint(1, 2, 0x02_0000)
            .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
            .sriov(SriovParams { total: 4, first_offset: 1, stride: 1, device: 3, bars })
            .build();
        assert_eq!(space.is_ok(), fits, "{bars:?}");
    }
}

/// A sum may be taken in pieces, also of odd lengths (RFC 1071, section 2).
#[test]
fn a_checksum_does_not_know_where_its_pieces_end() {
    let bytes: Vec<u8> = (0..=255).collect();
    let whole = Sum::new().with(&bytes).finish();
    for (first, second) in [(1, 2), (1, 4), (3, 100), (7, 8), (64, 129)] {
        let (a, rest) = bytes.split_at(first);
        let (b, c) = rest.split_at(second);
        assert_eq!(Sum::new().with(a).with(b).with(c).finish(), whole, "{first} {second}");
    }
}

#[test]
fn an_ip_header_that_ends_within_itself_is_refused() {
    let mut header = [0u8; 24];
    (header[0], header[9]) = (0x46, protocol::UDP);
    header[12..16].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).octets());
    let with_length = |length: u8| {
        let mut header = header;
        header[3] = length;
        Ipv4Header::parse_header(&header, 100).is_ok()
    };
    assert_eq!(
        [0, 20, 23, 24, 25, 100, 101].map(with_length),
        [false, false, false, true, true, true, false]
    );
}

#[test]
fn captures_count_nanoseconds_of_ethernet_and_picoseconds_of_pcie() {
    for (contents, digits, check) in [(Contents::Ethernet, 9, 4), (Contents::Pcie, 12, 0)] {
        let mut writer = PcapngWriter::new(Vec::new(), "").expect("memory takes it");
        writer.interface("x", 1, contents).expect("memory takes it");
        let bytes = writer.finish().expect("memory takes it");
        // Options if_tsresol and if_fcslen of one byte each, padded.
        for option in [[9, 0, 1, 0, digits, 0, 0, 0], [13, 0, 1, 0, check, 0, 0, 0]] {
            assert!(bytes.windows(8).any(|window| window == option), "{contents:?}: {option:?}");
        }
    }
}

#[test]
fn numbers_of_our_own_devices_stay() {
    let tests = [
        Test::LatencyRead,
        Test::LatencyWriteRead,
        Test::BandwidthRead,
        Test::BandwidthWrite,
        Test::BandwidthReadWrite,
    ];
    assert_eq!([0, 1, 2, 3, 4].map(Test::from_number), tests.map(Some));
    assert_eq!(Test::from_number(5), None);
    assert_eq!([0, 3].map(wire::gpu::doorbell), [0x10_0000, 0x10_3000]);
    assert_eq!(inline_address(0x1234, 5), 0x0005_1234);
    assert_eq!(of_inline_address(0x0005_1234), (0x1234, 5));
}

/// Virtual I/O Device 1.1, section 2.6: 16 bytes a descriptor, then 2 bytes each behind flags and index; behind the next page's
/// begin, flags, index and 8 bytes each.
#[test]
fn a_ring_of_virtio_takes_what_its_parts_take() {
    let ring = Ring { start: 0x10_0000, entries: 256 };
    assert_eq!((ring.available(), ring.used()), (0x10_1000, 0x10_2000));
    assert_eq!(ring.len(), 0x2000 + 4 + 8 * 256);
}

/// Linux' `bond_xmit_hash` with layer3+4, worked out by hand.
#[test]
fn a_flow_chooses_its_link_as_linux_has_it() {
    let [source, destination] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
    let flow = Flow { protocol: protocol::TCP, source, destination, ports: Some((1000, 2000)) };
    assert_eq!(flow.link_hash(), 0x01f5_f61f);
}

/// NVM Express 1.4, section 3.1.1.
#[test]
fn capabilities_stand_as_the_specification_has_them() {
    let capabilities = Capabilities {
        max_queue_entries: 0xff,
        contiguous_queues: true,
        weighted_round_robin: true,
        timeout: 0x14,
        doorbell_stride: 2,
        subsystem_reset: true,
        nvm_command_set: true,
        min_page_shift: 0,
        max_page_shift: 4,
        memory_buffer: true,
    };
    assert_eq!(capabilities.to_bits(), 0x0240_0032_1403_00ff);
    assert_eq!(Capabilities::from_bits(0x0240_0032_1403_00ff), capabilities);
    assert_eq!(Capabilities::from_bits(0), Capabilities::default());
}

/// PCIe Base 5.0, sections 7.5.1.2.4 (the ROM's size shows in the bits that stay zero) and 7.7.1 (MSI with mask bits).
#[test]
fn registers_of_a_function_stand_as_the_specification_has_them() {
    let mut function = examples::endpoint();
    function.write(0x30, u32::MAX, 0xf);
    assert_eq!(function.dword(0x30), 0xffff_0001);
    let mut at = function.dword(0x34) as u16 & 0xff;
    while function.dword(at) as u8 != 0x05 {
        at = (function.dword(at) >> 8) as u16 & 0xff;
    }
    // Eight vectors wanted, four granted, at an address of 64 bits.
    assert_eq!(function.dword(at) >> 16, 3 << 1 | 1 << 7 | 1 << 8);
    for (offset, value) in
        [(0, (2 << 4 | 1) << 16), (4, 0xfee0_0003), (8, 1), (0xc, 0x4140), (0x10, u32::MAX)]
    {
        function.write(at + offset, value, 0xf);
    }
    let msi = function.msi().expect("it has MSI");
    assert_eq!((msi.enabled, msi.vectors, msi.address), (true, 4, 0x1_fee0_0000));
    assert_eq!((msi.data, msi.mask), (0x4140, 0xff));
}

#[test]
fn the_first_byte_of_an_address_says_whether_it_is_a_groups() {
    for (first, is_group) in [(0x00, false), (0x01, true), (0x02, false), (0x33, true), (0xff, true)] {
        assert_eq!(MacAddr([first, 0, 0x5e, 0, 0, 1]).is_multicast(), is_group, "{first:#x}");
    }
    assert_eq!(pcap::pcie_header(true, false, true, 3, 0x0abc), [0b101, 3, 0x0a, 0xbc]);
    assert_eq!(pcap::pcie_header(false, true, false, 4, 1), [0b010, 4, 0, 1]);
}
