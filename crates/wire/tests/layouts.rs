//! Which bits say what, in numbers that the specifications give: what `parse` and `emit` agree on between them proves none of it.

use std::net::{IpAddr, Ipv4Addr};

use units::Duration;
use wire::dma_engine::Test;
use wire::ethernet::MacAddr;
use wire::ip::checksum::Sum;
use wire::ip::dissect::Flow;
use wire::ip::{Ipv4Header, protocol};
use wire::nic::descriptor::{inline_address, of_inline_address};
use wire::nvme::admin::AdminCommand as Admin;
use wire::nvme::identify::{self, IdentifyController, IdentifyNamespace, LbaFormat};
use wire::nvme::io::{Blocks, IoCommand as Io};
use wire::nvme::registers::{AdminQueues, Capabilities, MemoryBufferLocation, MemoryBufferSize};
use wire::nvme::status::Status;
use wire::nvme::{
    self, AsyncEvent, Command, DataPointer, DataTransfer, Feature, SglDescriptor, SglKind, SubmissionRing,
    log,
};
use wire::pcap::{self, Contents, PcapngWriter};
use wire::pcie::config::{
    BarKind, ConfigEffect, ConfigSpace, PcieParams, PortType, ResetKind, SriovParams, aer, examples, header,
    pcie_cap, slot,
};
use wire::pcie::crc::dllp_crc;
use wire::pcie::dllp::{DllpError, FlowControl, FlowControlKind, PowerManagement, Scale};
use wire::pcie::frame;
use wire::pcie::link::Framing;
use wire::pcie::tlp::{Message, MessageCode};
use wire::pcie::{Bdf, Dllp, FlowClass, Generation, Sequence, Width};
use wire::virtio::{NetHeader, Ring};
use wire::{Malformed, gpu, kpio, nic, ntb};

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
        let first = (words[..2] == [0x2345_6789, 1]).then_some(0x0000_0001_2345_6789);
        assert_eq!(io.first_block(), first);
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
        (Feature::VolatileWriteCache { enabled: false }, 0x06, 0),
        (Feature::NumberOfQueues { submission: 7, completion: 8 }, 0x07, 0x0008_0007),
        (Feature::InterruptCoalescing { threshold: 9, time: 2 }, 0x08, 0x0209),
        (vector(true), 0x09, 0x0001_0003),
        (vector(false), 0x09, 3),
        (Feature::WriteAtomicity { disable_normal: true }, 0x0a, 1),
        (events(false, false), 0x0b, 0x001f),
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

/// Base spec 7.9.14: message 0, software trigger; control and status behind it.
#[test]
fn containment_stands_as_the_specification_has_it() {
    let mut port = ConfigSpace::bridge(1, 2)
        .pcie(PcieParams::port(PortType::RootPort, Generation::Gen3, Width::X8))
        .containment()
        .build()
        .expect("everything has its place");
    let at = port.containment_offset().expect("it has one");
    assert_eq!(port.dword(at), 0x0001_001d, "the last in the list");
    assert_eq!((port.dword(at + 4), port.dword(at + 8)), (1 << 7, 0));
    // Trigger enable, completion control and interrupt enable can be set; the software trigger reads as 0.
    let effects = port.write(at + 4, u32::MAX, 0xf);
    assert!(effects.contains(&ConfigEffect::Containment(true)));
    assert_eq!(port.dword(at + 4), 1 << 7 | 0b1111 << 16);
    port.update(at + 8, 0, 0x1234_006f);
    assert!(!port.write(at + 8, 0, 0xf).contains(&ConfigEffect::Containment(false)));
    assert!(!port.write(at + 8, 1 << 3, 0xf).contains(&ConfigEffect::Containment(false)));
    port.reset(ResetKind::Hot);
    assert_eq!(
        (port.dword(at + 4), port.dword(at + 8)),
        (1 << 7, 0x1234_0067),
        "status is sticky, control is not"
    );
    assert!(port.write(at + 8, 1, 0xf).contains(&ConfigEffect::Containment(false)));
    assert_eq!(port.dword(at + 8), 0x1234_0066);
    let refused = ConfigSpace::endpoint(1, 2, 3).pcie(PcieParams::endpoint(Generation::Gen3, Width::X8));
    assert!(refused.containment().build().is_err());
}

/// Base spec 7.8.2, 7.5.3.15, 7.5.3.16 and the message of 2.2.8.7.
#[test]
fn tolerated_latency_stands_as_the_specification_has_it() {
    let pcie = PcieParams::endpoint(Generation::Gen3, Width::X8);
    let mut space = ConfigSpace::endpoint(1, 2, 3)
        .pcie(PcieParams { latency_tolerance: Some(Duration::from_us(100)), ..pcie })
        .build()
        .expect("everything has its place");
    let at = pcie_cap_of(&space);
    assert_eq!(space.dword(at + 0x24) & 1 << 11, 1 << 11, "LTR mechanism supported");
    assert!(!space.latency_enabled());
    space.write(at + 0x28, 1 << 10, 3);
    assert!(space.latency_enabled());
    assert_eq!(space.dword(0x100), 0x0001_0018);
    assert_eq!(space.tolerated_latencies(), Some([Duration::ZERO; 2]), "no more than firmware allows");
    space.write(0x104, u32::MAX, 0xf);
    assert_eq!(space.dword(0x104), 0x1fff_1fff);
    assert_eq!(space.tolerated_latencies(), Some([Duration::from_us(100); 2]));
    let plain = ConfigSpace::endpoint(1, 2, 3).pcie(pcie).build().expect("everything has its place");
    assert_eq!((plain.dword(pcie_cap_of(&plain) + 0x24) & 1 << 11, plain.tolerated_latencies()), (0, None));
    let message = Message::latency(Bdf::new(1, 0, 0), [Some(Duration::from_ns(71_680)), None]);
    assert_eq!(message.content, [0, 0, 0, 0, 0, 0, 0x88, 0x46]);
    assert_eq!(message.code.0, 0x10);
    assert_eq!(message.latencies(), Some([Some(Duration::from_ns(71_680)), None]));
    assert_eq!(Message::error(Bdf::new(1, 0, 0), MessageCode::ERR_COR).latencies(), None);
}

fn pcie_cap_of(space: &ConfigSpace) -> u16 {
    space.pcie_offset().expect("it has one")
}

/// Base spec 7.8.6: sizes from bit 4 (1 MiB) on; index, number of BARs and size of the one in control.
#[test]
fn resizable_bars_stand_as_the_specification_has_them() {
    let gpu = || ConfigSpace::endpoint(1, 2, 3).bar32(0, 4096, false).bar64(2, 256 << 20, true);
    let mut space = gpu().resizable_bar(2, 2 << 30).build().expect("everything has its place");
    assert_eq!(space.dword(0x100), 0x0001_0015);
    assert_eq!(space.dword(0x104), 0b1111 << 12, "256 MiB to 2 GiB");
    assert_eq!(space.dword(0x108), 8 << 8 | 1 << 5 | 2);
    let bar = |space: &ConfigSpace| space.bar(2).map(|bar| (bar.address, bar.size));
    let set = |space: &mut ConfigSpace, address: u64| {
        space.write(0x18, address as u32, 0xf);
        space.write(0x1c, (address >> 32) as u32, 0xf);
    };
    set(&mut space, u64::MAX);
    assert_eq!(bar(&space), Some((u64::MAX << 28, 256 << 20)));
    // Address bits that a larger one does not have are 0 at once.
    assert_eq!(space.write(0x108, 10 << 8, 0xf), [ConfigEffect::BarMoved { bar: 2 }]);
    assert_eq!((space.dword(0x108), bar(&space)), (10 << 8 | 1 << 5 | 2, Some((u64::MAX << 30, 1 << 30))));
    set(&mut space, 0x12_3fff_ffff);
    assert_eq!(bar(&space), Some((0x12_0000_0000, 1 << 30)));
    for code in [7, 12, 63] {
        assert!(space.write(0x108, code << 8, 0xf).is_empty(), "{code} is no size of it");
        assert_eq!(bar(&space), Some((0x12_0000_0000, 1 << 30)));
    }
    space.reset(ResetKind::Hot);
    assert_eq!(bar(&space), Some((0, 256 << 20)));
    for (index, most) in [(0, 1 << 20), (2, 3 << 30), (2, 1 << 20), (2, 1 << 48), (4, 1 << 30)] {
        assert!(gpu().resizable_bar(index, most).build().is_err(), "BAR {index} of {most:#x}");
    }
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
    for (first, second) in [(1, 2), (1, 4), (3, 5), (3, 100), (7, 8), (64, 129)] {
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
fn captures_count_nanoseconds_of_ethernet_and_tenths_of_them_of_pcie() {
    for (contents, digits, check) in [(Contents::Ethernet, 9, 4), (Contents::Pcie, 10, 0)] {
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
    // Entries of two and eight bytes, behind flags and index; then again from the first.
    assert_eq!([1, 255, 257].map(|n| ring.available_entry(n)), [0x10_1006, 0x10_1202, 0x10_1006]);
    assert_eq!([1, 255, 257].map(|n| ring.used_entry(n)), [0x10_200c, 0x10_27fc, 0x10_200c]);
    let header = NetHeader {
        flags: 1,
        gso: 1,
        headers: 0x0203,
        segment: 0x0405,
        checksum_start: 0x0607,
        checksum_offset: 0x0809,
        buffers: 0x0a0b,
    };
    let bytes = [1, 1, 3, 2, 5, 4, 7, 6, 9, 8, 0x0b, 0x0a];
    assert_eq!((header.emit(), NetHeader::parse(&bytes)), (bytes, Ok(header)));
    assert_eq!(NetHeader::parse(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed::Unsupported));
    // A page that the available ring fills to its end.
    assert_eq!(Ring { start: 0, entries: 4096 }.used(), 0x1_3000);
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

/// PCIe Base 5.0, section 3.5.1: all types of DLLP, with their first four bytes.
#[test]
fn every_dllp_stands_as_the_specification_has_it() {
    let power = Dllp::PowerManagement;
    for (dllp, bytes) in [
        (Dllp::Ack(Sequence::new(0xabc)), [0x00, 0, 0x0a, 0xbc]),
        (Dllp::Nak(Sequence::new(0xabc)), [0x10, 0, 0x0a, 0xbc]),
        (power(PowerManagement::EnterL1), [0x20, 0, 0, 0]),
        (power(PowerManagement::EnterL23), [0x21, 0, 0, 0]),
        (power(PowerManagement::ActiveStateRequestL1), [0x23, 0, 0, 0]),
        (power(PowerManagement::RequestAck), [0x24, 0, 0, 0]),
        (Dllp::Feature { acknowledged: true, supported: 0x12_3456 }, [0x02, 0x92, 0x34, 0x56]),
        (Dllp::Feature { acknowledged: false, supported: 0x7f_ffff }, [0x02, 0x7f, 0xff, 0xff]),
        (Dllp::Vendor([1, 2, 3]), [0x30, 1, 2, 3]),
        (Dllp::Nop, [0x31, 0, 0, 0]),
    ] {
        assert_eq!(dllp.to_bytes()[..4], bytes, "{dllp}");
        assert_eq!(Dllp::parse(&dllp.to_bytes()), Ok(dllp));
    }
    assert_eq!(Sequence::new(0xabc).to_string(), "2748");
    let known = (0..=0xff).filter(|&first| {
        let body = [first, 0, 0, 0];
        let [low, high] = dllp_crc(body).to_le_bytes();
        let parsed = Dllp::parse(&[first, 0, 0, 0, low, high]);
        assert!(parsed.is_ok() || parsed == Err(DllpError::Type(first)));
        parsed.is_ok()
    });
    // Those above, and of flow control three kinds of three classes on eight channels.
    assert_eq!(known.count(), 9 + 3 * 3 * 8);
    // Without scaled flow control, scales are zero.
    let plain = FlowControl {
        header_scale: Scale::None,
        data_scale: Scale::None,
        ..FlowControl::update(FlowClass::Posted, 5, Scale::By1, 6, Scale::By1)
    };
    let bytes = Dllp::FlowControl(plain).to_bytes();
    assert_eq!((&bytes[..4], Dllp::parse(&bytes)), (&[0x80, 1, 0x40, 6][..], Ok(Dllp::FlowControl(plain))));
    // Table 3-2: what each scale can say.
    let scales = [Scale::By1, Scale::By4, Scale::By16];
    for (scale, (headers, data)) in scales.into_iter().zip([(127, 2047), (508, 8188), (2032, 32_752)]) {
        assert_eq!((Scale::for_headers(headers), Scale::for_data(data)), (Some(scale), Some(scale)));
        assert_ne!((Scale::for_headers(headers + 1), Scale::for_data(data + 1)), (Some(scale), Some(scale)));
    }
    assert_eq!((Scale::for_headers(2033), Scale::for_data(32_753)), (None, None));
}

/// NVM Express 1.4, section 5.15: where the fields of identify data are. Every byte not named is zero.
#[test]
fn identify_data_stands_as_the_specification_has_it() {
    let expected = |fields: &[(usize, &[u8])]| {
        let mut page = Box::new([0; 4096]);
        for &(at, bytes) in fields {
            page[at..at + bytes.len()].copy_from_slice(bytes);
        }
        page
    };
    let controller = IdentifyController {
        vendor: 0x0102,
        subsystem_vendor: 0x0304,
        serial: "SN1".into(),
        model: "Model".into(),
        firmware: "1.0".into(),
        oui: 0x05_0607,
        arbitration_burst: 0x08,
        multi_path: 0x09,
        max_transfer_shift: 0x0a,
        controller: 0x0b0c,
        version: 0x0d0e_0f10,
        events: 0x1112_1314,
        kind: 0x15,
        admin_commands: 0x1617,
        abort_limit: 0x18,
        event_limit: 0x19,
        log_attributes: 0x1a,
        error_entries: 0x1b,
        firmware_updates: 0x1c,
        power_states: 0x1d,
        warning_temperature: 0x1e1f,
        critical_temperature: 0x2021,
        total_capacity: 0x22 << 120 | 0x23,
        unallocated_capacity: 0x24 << 120 | 0x25,
        submission_entry: 0x26,
        completion_entry: 0x27,
        namespaces: 0x2829_2a2b,
        commands: 0x2c2d,
        format: 0x2e,
        volatile_write_cache: true,
        atomic_write: 0x2f30,
        atomic_write_power_fail: 0x3132,
        sgl: 0x3334_3536,
        subsystem_name: "nqn.x".into(),
        max_power: 0x3738,
    };
    let page = expected(&[
        (0, &[2, 1, 4, 3]),
        (4, b"SN1                 "),
        (24, b"Model                                   "),
        (64, b"1.0     "),
        (72, &[8, 7, 6, 5, 9, 0x0a, 0x0c, 0x0b, 0x10, 0x0f, 0x0e, 0x0d]),
        (92, &[0x14, 0x13, 0x12, 0x11]),
        (111, &[0x15]),
        (256, &[0x17, 0x16, 0x18, 0x19, 0x1c, 0x1a, 0x1b, 0x1d, 0, 0, 0x1f, 0x1e, 0x21, 0x20]),
        (280, &[0x23]),
        (295, &[0x22, 0x25]),
        (311, &[0x24]),
        (512, &[0x26, 0x27, 0, 0, 0x2b, 0x2a, 0x29, 0x28, 0x2d, 0x2c]),
        (524, &[0x2e, 1, 0x30, 0x2f, 0x32, 0x31]),
        (536, &[0x36, 0x35, 0x34, 0x33]),
        (768, b"nqn.x"),
        (2048, &[0x38, 0x37]),
    ]);
    assert_eq!(controller.emit(), page);
    assert_eq!(IdentifyController::parse(&page), controller);

    let formats = [(0x0102, 9, 1), (0x0304, 12, 2)].map(|(metadata, block_shift, performance)| LbaFormat {
        metadata,
        block_shift,
        performance,
    });
    let namespace = IdentifyNamespace {
        size: 0x0102_0304_0506_0708,
        capacity: 0x090a_0b0c_0d0e_0f10,
        utilisation: 0x1112_1314_1516_1718,
        features: 0x19,
        format: 1,
        shared: true,
        deallocated: 5,
        bytes: 0x1a << 120 | 0x1b,
        guid: 0x1c << 120 | 0x1d,
        eui: 0x1e1f_2021_2223_2425,
        formats: formats.to_vec(),
    };
    let page = expected(&[
        (0, &[8, 7, 6, 5, 4, 3, 2, 1, 0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 9]),
        (16, &[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x19, 1, 1]),
        (30, &[1]),
        (33, &[5]),
        (48, &[0x1b]),
        (63, &[0x1a]),
        (104, &[0x1c]),
        (119, &[0x1d, 0x1e, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25]),
        (128, &[2, 1, 9, 1, 4, 3, 12, 2]),
    ]);
    assert_eq!(namespace.emit(), page);
    assert_eq!(IdentifyNamespace::parse(&page), namespace);
    let descriptors = expected(&[
        (0, &[1, 8]),
        (4, &[0x1e, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25]),
        (12, &[2, 16]),
        (16, &[0x1c]),
        (31, &[0x1d]),
    ]);
    assert_eq!(identify::emit_descriptors(&namespace), descriptors);

    let lists = [
        (identify::emit_namespaces([1, 0x0203_0405]), expected(&[(0, &[1]), (4, &[5, 4, 3, 2])])),
        (identify::emit_controllers(&[0, 0x0102]), expected(&[(0, &[2]), (4, &[2, 1])])),
    ];
    for (emitted, page) in &lists {
        assert_eq!(emitted, page);
    }
    assert_eq!(identify::parse_namespaces(&lists[0].1), [1, 0x0203_0405]);
    assert_eq!(identify::parse_controllers(&lists[1].1), [0, 0x0102]);
    assert_eq!(identify::parse_controllers(&[0xff; 4096]).len(), 2047);
}

/// NVM Express 1.4, sections 5.14.1.1 to 5.14.1.3.
#[test]
fn logs_stand_as_the_specification_has_them() {
    let set = |bytes: &[u8]| -> Vec<(usize, u8)> {
        (0..).zip(bytes.iter().copied()).filter(|&(_, byte)| byte != 0).collect()
    };
    let entry = log::ErrorEntry {
        count: 1 << 56 | 2,
        queue: 3,
        command: 4,
        status: Status::new(1, 0x05),
        location: 6,
        lba: 7 << 56 | 8,
        namespace: 9,
    };
    let places = [(0, 2), (7, 1), (8, 3), (10, 4), (12, 0x0a), (13, 2), (14, 6), (16, 8), (23, 7), (24, 9)];
    assert_eq!(set(&entry.emit()), places);
    assert_eq!(log::ErrorEntry::parse(&entry.emit()), entry);
    let smart = log::SmartLog {
        critical_warning: 1,
        temperature: 0x0203,
        available_spare: 4,
        spare_threshold: 5,
        percentage_used: 6,
        data_units_read: 7,
        data_units_written: 8,
        host_reads: 9,
        host_writes: 10,
        power_cycles: 11,
        unsafe_shutdowns: 12,
        media_errors: 13,
        error_entries: 14 << 120 | 15,
    };
    let health = [(0, 1), (1, 3), (2, 2), (3, 4), (4, 5), (5, 6)];
    let counters =
        [(32, 7), (48, 8), (64, 9), (80, 10), (112, 11), (144, 12), (160, 13), (176, 15), (191, 14)];
    assert_eq!(set(&smart.emit()), [&health[..], &counters[..]].concat());
    assert_eq!(log::SmartLog::parse(&smart.emit()), smart);
    let slot = log::FirmwareSlotLog { active: 1, revision: "A1".into() };
    let bytes = slot.emit();
    assert_eq!((bytes[0], &bytes[8..17]), (1, &b"A1      \0"[..]));
    assert_eq!(log::FirmwareSlotLog::parse(&bytes), slot);
}

/// NVM Express 1.4, figure 105: how data is pointed at, and in which direction it goes (5: bits 1:0 of an opcode).
#[test]
fn data_of_commands_is_where_the_specification_has_it() {
    let descriptor = SglDescriptor { address: 0x1234, length: 512, kind: SglKind::DataBlock };
    for (pointer, psdt) in [
        (DataPointer::Prp { first: 0x1000, second: 0x2000 }, 0x00),
        (DataPointer::Sgl { descriptor, metadata_segment: false }, 0x40),
        (DataPointer::Sgl { descriptor, metadata_segment: true }, 0x80),
    ] {
        let mut bytes = Command::new(1, 2, 3, [0; 6]).with_data(pointer).emit();
        assert_eq!(bytes[1], psdt);
        bytes[1] |= 0x3c | 2;
        let command = Command::parse(&bytes);
        assert_eq!((command.pointer(), command.fused), (Some(pointer), 2));
        bytes[1] = 0xc0;
        assert_eq!(Command::parse(&bytes).pointer(), None, "reserved");
    }
    let kinds = [0x00, 0x10, 0x20, 0x30, 0x45].map(|kind| {
        let mut bytes = [0; 16];
        bytes[15] = kind;
        assert_eq!(SglDescriptor::parse(&bytes).emit(), bytes);
        SglDescriptor::parse(&bytes).kind
    });
    let expected = [SglKind::DataBlock, SglKind::BitBucket, SglKind::Segment, SglKind::LastSegment];
    assert_eq!((&kinds[..4], kinds[4]), (&expected[..], SglKind::Other(0x45)));
    use DataTransfer::{Both, ToController, ToHost};
    let transfers = [0x80, 0x81, 0x82, 0x83].map(|opcode| Command::new(opcode, 0, 0, [0; 6]).transfer());
    assert_eq!(transfers, [DataTransfer::None, ToController, ToHost, Both]);
    let command = Command::new(0x0d, 0x0102, 7, [10, 11, 12, 13, 14, 15]);
    assert_eq!([0, 9, 10, 15, 16].map(|n| command.word(n)), [0, 0, 10, 15, 0]);
    assert_eq!(
        command.to_string(),
        "opcode 0x0d cid 258 nsid 0x7 0000000a 0000000b 0000000c 0000000d 0000000e 0000000f"
    );
    assert_eq!([1, 8].map(|count| Blocks::new(0, count).len()), [1, 8]);
    let status = Status::new(2, 0x81);
    assert!(Status::default().is_success() && !status.is_success() && !Status::new(0, 1).is_success());
    assert!(!Status::new(1, 0).is_success() && status.is(status.dnr()));
    assert!(!status.is(Status::new(2, 0x80)) && !status.is(Status::new(1, 0x81)));
}

/// NVM Express 1.4, sections 3.1.5 to 3.1.14, 5.2 and 3.1.24: registers whose fields are apart.
#[test]
fn controller_registers_stand_as_the_specification_has_them() {
    let queues = AdminQueues { submission: 0x123, completion: 0x456 };
    assert_eq!((queues.to_bits(), AdminQueues::from_bits(0xf456_f123)), (0x0456_0123, queues));
    let event = AsyncEvent { kind: 2, information: 0x34, log: 0x56 };
    assert_eq!((event.to_bits(), AsyncEvent::from_bits(0x0056_3402)), (0x0056_3402, event));
    let location = MemoryBufferLocation { bar: 2, offset: 0x12345 };
    assert_eq!((location.to_bits(), MemoryBufferLocation::from_bits(0x1234_5002)), (0x1234_5002, location));
    for stride in 0..4 {
        let [submission, completion] = [
            nvme::registers::submission_doorbell(3, stride),
            nvme::registers::completion_doorbell(3, stride),
        ];
        assert_eq!([submission, completion], [6, 7].map(|n| 0x1000 + n * (4 << stride)));
    }
    // The largest rings of sixteen bits.
    let mut ring = SubmissionRing::new(u16::MAX);
    for n in 0..u16::MAX - 1 {
        assert_eq!((ring.tail(), ring.push()), (n, Some(n)));
    }
    assert!(ring.push().is_none() && ring.completed(u16::MAX - 1) && ring.free() == u16::MAX - 1);
}

/// PCIe Base 5.0, sections 7.8.4.2, 7.8.4.5, 7.5.3.8, 7.5.3.10 and 7.5.3.11, and NVM Express 1.4, figure 247.
#[test]
fn bits_of_errors_and_features_have_the_specified_numbers() {
    use aer::{correctable, uncorrectable};
    let bit = |n: u32| 1 << n;
    let errors = [
        uncorrectable::DATA_LINK_PROTOCOL,
        uncorrectable::SURPRISE_DOWN,
        uncorrectable::POISONED,
        uncorrectable::FLOW_CONTROL,
        uncorrectable::COMPLETION_TIMEOUT,
        uncorrectable::UNEXPECTED_COMPLETION,
        uncorrectable::RECEIVER_OVERFLOW,
        uncorrectable::MALFORMED,
        uncorrectable::ECRC,
        uncorrectable::UNSUPPORTED_REQUEST,
        uncorrectable::ACS_VIOLATION,
        uncorrectable::INTERNAL,
    ];
    assert_eq!(errors, [4, 5, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22].map(bit));
    let errors = [
        correctable::RECEIVER,
        correctable::BAD_TLP,
        correctable::BAD_DLLP,
        correctable::REPLAY_ROLLOVER,
        correctable::REPLAY_TIMEOUT,
        correctable::ADVISORY_NON_FATAL,
    ];
    assert_eq!(errors, [0, 6, 7, 8, 12, 13].map(bit));
    let link = [pcie_cap::LINK_STATUS_TRAINING, pcie_cap::LINK_STATUS_ACTIVE];
    assert_eq!(link, [1 << 11, 1 << 13]);
    let slot = [slot::STATUS_PRESENCE_CHANGED, slot::STATUS_COMMAND_COMPLETED, slot::STATUS_PRESENT];
    assert_eq!((slot, slot::STATUS_LINK_CHANGED), ([1 << 3, 1 << 4, 1 << 6], 1 << 8));
    assert_eq!((slot::CONTROL_POWER_OFF, header::COMMAND_SERR), (1 << 10, 1 << 8));
    assert_eq!([identify::OACS_FORMAT, identify::OACS_NAMESPACES], [1 << 1, 1 << 3]);
    let optional = [identify::ONCS_COMPARE, identify::ONCS_DATASET, identify::ONCS_WRITE_ZEROES];
    assert_eq!((optional, identify::SGLS_BIT_BUCKET), ([1 << 0, 1 << 2, 1 << 3], 1 << 16));
}

#[test]
fn each_flag_of_our_own_devices_has_a_bit_of_its_own() {
    use nic::registers::{control, event, feature, kpio, queue, rss, status};
    use nic::{completion, descriptor};
    let descriptors = [
        descriptor::END,
        descriptor::REPORT,
        descriptor::NETWORK_CHECKSUM,
        descriptor::TRANSPORT_CHECKSUM,
        descriptor::THROUGH_FUNCTION,
        descriptor::INLINE,
    ];
    let completions = [
        completion::END,
        completion::NETWORK_RIGHT,
        completion::NETWORK_WRONG,
        completion::TRANSPORT_RIGHT,
        completion::TRANSPORT_WRONG,
        completion::FAILED,
        completion::STEERED,
        completion::HASHED,
        completion::HASHED_PORTS,
        completion::INLINE,
        completion::HELD,
    ];
    let features = [
        feature::RX_CHECKSUM,
        feature::TX_CHECKSUM,
        feature::TSO,
        feature::RSS,
        feature::FLOW_RULES,
        feature::PROMISCUOUS,
        feature::ALL_GROUPS,
        feature::KPIO,
        feature::INLINE,
        feature::STATION,
        feature::WIDE_COMPLETIONS,
        feature::GLOBAL_RULES,
        feature::EVENT_QUEUES,
    ];
    for flags in [
        descriptors.map(u32::from).to_vec(),
        completions.map(u32::from).to_vec(),
        features.to_vec(),
        vec![queue::ENABLE, queue::IN_PLACE, queue::TO_WORD, queue::ALWAYS_ARMED, queue::ARM],
        vec![queue::RUNNING, queue::ERROR],
        vec![kpio::ENABLE, kpio::FRAMED, kpio::SHORT_LINES, kpio::HOLD],
        vec![kpio::RUNNING],
        vec![control::ENABLE, control::RESET],
        vec![status::READY, status::LINK_UP],
        vec![event::LINK, event::QUEUE_ERROR, event::QUEUES],
        vec![rss::ADDRESSES, rss::TCP, rss::UDP],
    ] {
        assert!(flags.iter().all(|flag| flag.is_power_of_two()), "{flags:x?}");
        assert_eq!(flags.iter().fold(0, |all, flag| all | flag).count_ones() as usize, flags.len());
    }
    let modes = [queue::TO_REGISTER, queue::IN_PLACE, queue::TO_WORD, queue::TO_RING];
    assert_eq!(modes.map(|mode| mode & !queue::COMPLETION_MODE), [0; 4]);
    assert_eq!((modes[3], queue::COMPLETION_MODE), (modes[1] | modes[2], modes[3]));
    let some = nic::TxDescriptor { flags: 0b101, ..nic::TxDescriptor::default() };
    assert_eq!([0b100, 0b101, 0b110, 0b010].map(|flags| some.has(flags)), [true, true, false, false]);
    let some = nic::Completion { flags: 0b101, ..nic::Completion::default() };
    assert_eq!([0b100, 0b101, 0b110, 0b010].map(|flags| some.has(flags)), [true, true, false, false]);
    assert_eq!([0, 1, 16, 17, 64].map(descriptor::inline_entries), [0, 1, 1, 2, 4]);
}

#[test]
fn words_of_our_own_devices_stay() {
    let [read, write] = [Test::LatencyRead, Test::BandwidthWrite].map(Test::is_latency);
    assert_eq!((read, write, Test::LatencyWriteRead.is_latency()), (true, false, true));
    use gpu::{Fault, GpuCommand, Launch, Place, Program, WindowKind};
    assert_eq!(
        [0, 1, 2, 3].map(WindowKind::from_number),
        [Some(WindowKind::None), Some(WindowKind::Local), Some(WindowKind::Bus), None]
    );
    let faults = [Fault::Malformed, Fault::Address, Fault::Bus].map(Some);
    assert_eq!(([1, 2, 3].map(Fault::from_number), Fault::from_number(0)), (faults, None));
    let place = Place { window: 1, offset: 2 };
    assert_eq!(place.after(3), Place { window: 1, offset: 5 });
    for (number, program) in [(0, Program::Busy), (1, Program::Ping), (2, Program::Pong), (3, Program::Chase)]
    {
        let launch = Launch { program, polled: place, written: place, result: place, count: 9 };
        let bytes = GpuCommand::Launch(launch).emit();
        assert_eq!((bytes[1], GpuCommand::parse(&bytes)), (number, Some(GpuCommand::Launch(launch))));
    }

    use ntb::{CableAddress, WindowSegment};
    let segment = |registers| WindowSegment { node: 0x12, registers, target: 0x3456_0000 };
    for (segment, words) in
        [(segment(false), [0x3456_0000, 0x12_0001]), (segment(true), [0x3456_0000, 0x12_0003])]
    {
        assert_eq!((segment.words(), WindowSegment::from_words(words)), (words, Some(segment)));
    }
    assert_eq!(WindowSegment::from_words([0, 0x12_0002]), None);
    let requester = Bdf::new(0x12, 3, 4);
    assert_eq!(ntb::local_entry(Some(requester)), 0x8000_121c);
    assert_eq!(ntb::remote_entry(Some((0x12, 0x34))), 0x8000_1234);
    let address = |registers| CableAddress { node: 0x12, registers, address: 0x7_1234_5678_9abc };
    for (address, bits) in [(address(false), 0x0127_1234_5678_9abc), (address(true), 0x012f_1234_5678_9abc)] {
        assert_eq!((address.bits(), CableAddress::from_bits(bits)), (bits, address));
    }

    use kpio::{Drop, Drops};
    let mut drops = Drops::default();
    for (n, why) in Drop::ALL.into_iter().enumerate() {
        (0..=n).for_each(|_| drops.add(why));
    }
    // All but the lines of no frame, of which there are seven.
    assert_eq!((drops.of(Drop::Stray), drops.frames()), (7, 1 + 2 + 3 + 4 + 5 + 6));
}

/// A decoder of either format says the same of the same frame.
#[test]
fn both_formats_bring_a_frame_to_its_end() {
    use kpio::{Decoder, Format, Line, Outcome, framed};
    let frame: Vec<u8> = (1..=100).collect();
    for format in [Format::Signature(0x1122_3344_5566_7788), Format::Framed] {
        let header = framed::Header { length: 100, ..framed::Header::default() };
        let mut lines = Vec::new();
        format.encode(header, &frame, &mut lines);
        assert_eq!((lines.len(), format.lines(100)), (128, 2), "{format:?}");
        let mut decoder = Decoder::new(format, 1500);
        assert!(!decoder.is_inside());
        let line = |n: usize| Line { bytes: &lines[64 * n..64 * (n + 1)], is_first: n == 0, is_intact: true };
        assert_eq!(decoder.line(line(0)), Outcome::More);
        assert!(decoder.is_inside());
        assert!(matches!(decoder.line(line(1)), Outcome::Frame(_)), "{format:?}");
        assert_eq!((&decoder.frame()[..100], decoder.is_inside()), (&frame[..], false));
        assert_eq!(decoder.dropped().frames(), 0);
    }
    assert_eq!((framed::LONGEST, framed::OVERHEAD), (16_383, 8));
    let mut decoder = framed::FramedDecoder::new(1500);
    let begun = 100u16.to_le_bytes();
    // A frame of 100 bytes needs 108: a line, and 44 bytes of the next; a short one less than a line.
    let first = [begun[0], begun[1], 0, 0];
    assert_eq!(
        (decoder.needs(true, &first), decoder.needs(true, &[20, 0, 0, 0]), decoder.needs(true, &[])),
        (64, 28, 64)
    );
    assert_eq!((decoder.needs(false, &first), decoder.lines_left()), (64, 0));
    let mut lines = Vec::new();
    framed::encode(framed::Header { length: 100, ..framed::Header::default() }, &frame, &mut lines);
    decoder.line(Line { bytes: &lines[..64], is_first: true, is_intact: true });
    assert_eq!((decoder.needs(false, &[]), decoder.lines_left(), decoder.is_inside()), (44, 1, true));
    assert_eq!(decoder.needs(true, &[20, 0, 0, 0]), 28, "a new frame");
}
