//! Headers against bytes worked out by hand from the specification's figures, and round trips.

use super::*;
use crate::pcie::IntxLine;
use proptest::prelude::*;

fn bytes(tlp: &Tlp) -> Vec<u8> {
    let mut buf = vec![0xaa; tlp.header_len()];
    tlp.emit(&mut buf);
    buf
}

fn memory(address: u64, len: u32) -> MemoryRequest {
    MemoryRequest::for_bytes(Bdf::new(3, 0, 1), 5, address, len)
}

#[test]
fn memory_read_3dw() {
    let tlp = Tlp::new(TlpKind::MemoryRead(memory(0x1234_5678, 64)));
    let expected = [0x00, 0, 0, 16, 0x03, 0x01, 5, 0xff, 0x12, 0x34, 0x56, 0x78];
    assert_eq!(bytes(&tlp), expected);
    assert_eq!(Tlp::parse(&expected), Ok((tlp, 12)));
    assert_eq!(tlp.to_string(), "MRd(32) 03:00.1 tag 5 addr 0x12345678 len 16 dw be f/f");
}

#[test]
fn memory_write_4dw_with_every_attribute() {
    let mut tlp = Tlp::new(TlpKind::MemoryWrite(MemoryRequest { tag: 0x3a5, ..memory(0x8_0000_1000, 4096) }));
    tlp.common = Common {
        traffic_class: 5,
        relaxed_ordering: true,
        no_snoop: true,
        id_based_ordering: true,
        address_type: AddressType::Translated,
        poisoned: true,
        digest: true,
    };
    // fmt 011 type 00000; T9 TC=101 T8 IDO; TD EP RO NS AT=10 length 0 (1024 dw)
    let expected =
        [0x60, 0xdc, 0xf8, 0x00, 0x03, 0x01, 0xa5, 0xff, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x10, 0x00];
    assert_eq!(bytes(&tlp), expected);
    assert_eq!(Tlp::parse(&expected), Ok((tlp, 16)));
    assert_eq!(tlp.packet_len(), 16 + 4096 + 4);
    assert_eq!(tlp.credits(), (FlowClass::Posted, 1, 256));
}

#[test]
fn completion_with_data() {
    let header = CompletionHeader::with_data(Bdf::new(0, 2, 0), &memory(0x1044, 4), 0x1044, 4, 4);
    let tlp = Tlp::new(TlpKind::CompletionData(header));
    let expected = [0x4a, 0, 0, 1, 0x00, 0x10, 0x00, 0x04, 0x03, 0x01, 5, 0x44];
    assert_eq!(bytes(&tlp), expected);
    assert_eq!(Tlp::parse(&expected), Ok((tlp, 12)));
    assert_eq!(tlp.to_string(), "CplD 00:02.0 SC to 03:00.1 tag 5 count 4 lower 0x44 len 1 dw");
}

#[test]
fn byte_count_4096_is_sent_as_zero() {
    let header = CompletionHeader::with_data(Bdf::default(), &memory(0x1000, 4096), 0x1000, 256, 4096);
    let tlp = Tlp::new(TlpKind::CompletionData(header));
    assert_eq!(bytes(&tlp)[6..8], [0, 0]);
    assert_eq!(Tlp::parse(&bytes(&tlp)).unwrap().0, tlp);
}

#[test]
fn config_write_type_1() {
    let tlp = Tlp::new(TlpKind::ConfigWrite(ConfigRequest {
        requester: Bdf::new(0, 0, 0),
        tag: 1,
        target: Bdf::new(4, 3, 2),
        register: 0x110,
        first_be: 0b0011,
        config_type: ConfigType::Type1,
    }));
    let expected = [0x45, 0, 0, 1, 0, 0, 1, 0x03, 0x04, 0x1a, 0x01, 0x10];
    assert_eq!(bytes(&tlp), expected);
    assert_eq!(Tlp::parse(&expected), Ok((tlp, 12)));
    assert_eq!(tlp.to_string(), "CfgWr1 00:00.0 tag 1 to 04:03.2 reg 0x110 be 3");
}

#[test]
fn interrupt_message() {
    let tlp = Tlp::new(TlpKind::Message(Message::intx(Bdf::new(3, 0, 0), IntxLine::B, true)));
    let expected = [0x34, 0, 0, 0, 0x03, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes(&tlp), expected);
    // The length of a Msg is reserved and ignored.
    let mut noisy = expected;
    noisy[3] = 7;
    assert_eq!(Tlp::parse(&noisy), Ok((tlp, 16)));
    assert_eq!(tlp.to_string(), "Msg Assert_INTB 03:00.0 local");
    for (line, active) in IntxLine::ALL.into_iter().flat_map(|line| [(line, true), (line, false)]) {
        assert_eq!(Message::intx(Bdf::default(), line, active).line(), Some((line, active)));
    }
    assert_eq!(Message::error(Bdf::default(), MessageCode::ERR_COR).line(), None);
}

#[test]
fn costs_on_the_wire() {
    // With a 64-bit address 24 bytes over the payload, completions 20.
    let high = memory(1 << 32, 64);
    let completion = CompletionHeader::with_data(Bdf::default(), &high, 1 << 32, 64, 64);
    for framing in [Framing::Symbols, Framing::Tokens] {
        assert_eq!(Tlp::new(TlpKind::MemoryWrite(high)).wire_len(framing), 64 + 24);
        assert_eq!(Tlp::new(TlpKind::MemoryRead(high)).wire_len(framing), 24);
        assert_eq!(Tlp::new(TlpKind::CompletionData(completion)).wire_len(framing), 64 + 20);
    }
}

#[test]
fn errors_name_field_and_allowed_values() {
    let error = |change: &[(usize, u8)], len: usize| {
        let mut buf = bytes(&Tlp::new(TlpKind::MemoryRead(memory(0x1_0000_0000, 64))));
        change.iter().for_each(|&(at, value)| buf[at] = value);
        Tlp::parse(&buf[..len]).unwrap_err().to_string()
    };
    assert_eq!(error(&[], 3), "truncated header: 3 bytes, needs 12");
    assert_eq!(error(&[], 15), "truncated header: 15 bytes, needs 16");
    assert!(error(&[(0, 0x21)], 16).contains("MRdLk"));
    assert!(error(&[(0, 0x4c)], 16).contains("FetchAdd"));
    assert!(error(&[(0, 0x80)], 16).contains("TLP prefix"));
    assert!(error(&[(2, 0x0c)], 16).contains("AT is 0x3"));
    assert!(error(&[(3, 1)], 16).contains("last byte enables"));
    assert!(error(&[(7, 0xf0)], 16).contains("first byte enables"));
    assert!(error(&[(11, 0)], 16).contains("4 GiB and above"));
    assert!(error(&[(14, 0xf), (15, 0xf0)], 16).contains("4 KiB"));
}

#[test]
fn a_packet_that_breaks_a_rule_is_told_which() {
    let told = |tlp: Tlp| tlp.check().map_err(|error| error.to_string().replace("malformed TLP: ", ""));
    let with = |kind, common: Common| Tlp { common, ..Tlp::new(kind) };
    let read = |change: fn(&mut MemoryRequest)| {
        let mut request = memory(0x1_2345_6000, 8);
        change(&mut request);
        Tlp::new(TlpKind::MemoryRead(request))
    };
    let completion = |change: fn(&mut CompletionHeader)| {
        let mut header = CompletionHeader::with_data(Bdf::default(), &memory(0x1000, 4), 0x1000, 4, 4);
        change(&mut header);
        header
    };
    let data = |change| Tlp::new(TlpKind::CompletionData(completion(change)));
    let none = |change| Tlp::new(TlpKind::Completion(completion(change)));
    let message = |length_dw| {
        let plain = Message::plain(Bdf::default(), Routing::Local, MessageCode::VENDOR_TYPE_1);
        Tlp::new(TlpKind::Message(Message { length_dw, ..plain }))
    };
    let io = IoRequest { requester: Bdf::default(), tag: 0, address: 0x40, first_be: 0xf };
    let config = ConfigRequest {
        requester: Bdf::default(),
        tag: 0,
        target: Bdf::default(),
        register: 0x40,
        first_be: 0xf,
        config_type: ConfigType::Type0,
    };
    let (io_read, config_read) = (TlpKind::IoRead(io), TlpKind::ConfigRead(config));
    let plain = Common::DEFAULT;
    for (tlp, expected) in [
        (read(|_| ()), ""),
        (read(|r| r.tag = 1023), ""),
        (read(|r| r.tag = 1024), "tag is 0x400"),
        (read(|r| r.tag = 1025), "tag is 0x401"),
        (read(|r| r.address += 2), "address is 0x123456002"),
        (read(|r| r.length_dw = 0), "length is 0x0"),
        (read(|r| r.length_dw = 1024), ""),
        (read(|r| r.length_dw = 1025), "length is 0x401"),
        (read(|r| (r.address, r.length_dw) = (0xff0, 5)), "address and length is 0xff0"),
        (read(|r| (r.first_be, r.last_be) = (5, 9)), ""),
        (read(|r| (r.address, r.first_be) = (4, 5)), "first byte enables of a longer request is 0x5"),
        (read(|r| (r.address, r.last_be) = (4, 9)), "last byte enables of a longer request is 0x9"),
        (read(|r| r.first_be = 0), "first byte enables of a longer request is 0x0"),
        (read(|r| r.first_be = 0x10), "first byte enables is 0x10"),
        (read(|r| r.last_be = 0), "last byte enables of a longer request is 0x0"),
        (read(|r| r.last_be = 0xf), ""),
        (read(|r| r.last_be = 0x10), "last byte enables of a longer request is 0x10"),
        (read(|r| r.last_be = 0x11), "last byte enables of a longer request is 0x11"),
        (read(|r| r.length_dw = 1), "last byte enables of a single doubleword is 0xf"),
        (with(read(|_| ()).kind, Common { traffic_class: 7, ..plain }), ""),
        (with(read(|_| ()).kind, Common { traffic_class: 8, ..plain }), "traffic class is 0x8"),
        (with(read(|_| ()).kind, Common { address_type: AddressType::Reserved, ..plain }), "AT is 0x3"),
        (data(|c| c.byte_count = 4096), ""),
        (data(|c| c.byte_count = 4097), "byte count is 0x1001"),
        (data(|c| c.byte_count = 0), "byte count is 0x0"),
        (data(|c| c.lower_address = 0x7f), ""),
        (data(|c| c.lower_address = 0x80), "lower address is 0x80"),
        (data(|c| c.lower_address = 0x81), "lower address is 0x81"),
        (data(|c| c.length_dw = 0), "length of a CplD is 0x0"),
        (data(|c| c.length_dw = 1025), "length of a CplD is 0x401"),
        (none(|_| ()), "length of a Cpl is 0x1"),
        (none(|c| c.length_dw = 0), ""),
        (message(0), ""),
        (message(1024), ""),
        (message(1025), "length of a message is 0x401"),
        (message(1026), "length of a message is 0x402"),
        (Tlp::new(io_read), ""),
        (with(io_read, Common { traffic_class: 1, ..plain }), "TC of a configuration or I/O request is 0x1"),
        (
            with(io_read, Common { no_snoop: true, ..plain }),
            "attributes of a configuration or I/O request is 0x1",
        ),
        (Tlp::new(TlpKind::IoRead(IoRequest { address: 2, ..io })), "address is 0x2"),
        (Tlp::new(TlpKind::IoRead(IoRequest { first_be: 0x10, ..io })), "first byte enables is 0x10"),
        (Tlp::new(config_read), ""),
        (with(config_read, Common { relaxed_ordering: true, ..plain }), "I/O request is 0x2"),
        (with(config_read, Common { id_based_ordering: true, ..plain }), "I/O request is 0x4"),
        (Tlp::new(TlpKind::ConfigRead(ConfigRequest { register: 0x1000, ..config })), "register is 0x1000"),
        (
            Tlp::new(TlpKind::ConfigRead(ConfigRequest { first_be: 0x1f, ..config })),
            "first byte enables is 0x1f",
        ),
    ] {
        match told(tlp) {
            Ok(()) => assert_eq!(expected, "", "{tlp}"),
            Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{error} {expected}"),
        }
    }
    // What else a received packet cannot be.
    let parsed = |kind, (at, byte): (usize, u8)| {
        let mut packet = bytes(&Tlp::new(kind));
        packet[at] = byte;
        Tlp::parse(&packet).map_err(|error| error.to_string().replace("malformed TLP: ", ""))
    };
    for kind in [io_read, config_read] {
        assert!(parsed(kind, (7, 0x1f)).is_err_and(|error| error.contains("request is 0x1,")));
        assert!(parsed(kind, (3, 2)).is_err_and(|error| error.contains("I/O request is 0x2,")));
    }
    // An address type means nothing there.
    assert_eq!(parsed(io_read, (2, 0x0c)), Ok((Tlp::new(io_read), 12)));
    let name = |first| parsed(io_read, (0, first)).map_or_else(|error| error, |_| String::new());
    for (first, expected) in [
        (0x01, "MRdLk"),
        (0x0b, "(CplLk)"),
        (0x1b, "TCfgRd"),
        (0x1f, "undefined"),
        (0x4b, "CplDLk"),
        (0x4c, "FetchAdd"),
        (0x4d, "Swap"),
        (0x6d, "Swap"),
        (0x4e, "CAS"),
        (0x5b, "DMWr"),
        (0x7b, "DMWr"),
        (0x9f, "TLP prefix"),
        (0xa0, "undefined"),
    ] {
        assert!(name(first).contains(expected), "{first:#x}: {}", name(first));
    }
}

#[test]
fn packets_are_described_with_what_they_hold() {
    let requester = Bdf::new(3, 0, 1);
    let mut message =
        Message::vendor(requester, Routing::ById, MessageCode::VENDOR_TYPE_0, 0x1234, [5, 6, 7, 8]);
    assert_eq!(message.content, [0, 0, 0x12, 0x34, 5, 6, 7, 8]);
    message.content[0] = 9;
    message.length_dw = 2;
    assert_eq!(message.target(), Some(Bdf::new(9, 0, 0)));
    assert_eq!(message.to_string(), "MsgD Vendor_Defined Type 0 03:00.1 to 09:00.0 len 2 dw");
    let io = IoRequest { requester, tag: 7, address: 0x3f8, first_be: 1 };
    assert_eq!(io.to_string(), "03:00.1 tag 7 addr 0x3f8 be 1");
    assert_eq!(Message::plain(requester, Routing::Broadcast, MessageCode::PME_TURN_OFF).target(), None);
    let failed = CompletionHeader::for_read_error(
        requester,
        &memory(0x1_0000_0fc5, 7),
        CompletionStatus::CompleterAbort,
    );
    assert_eq!(failed.to_string(), "03:00.1 CA to 03:00.1 tag 5 count 7 lower 0x45");
}

/// Base spec 2.3.1.1: bytes of its request in a completion, and whether it is the last.
#[test]
fn a_completion_says_how_much_it_brings() {
    for (status, lower_address, byte_count, length_dw, here, is_last) in [
        (CompletionStatus::Successful, 0, 128, 16, 64, false),
        (CompletionStatus::Successful, 0x40, 64, 16, 64, true),
        (CompletionStatus::Successful, 0x43, 65, 16, 61, false),
        (CompletionStatus::Successful, 0x43, 61, 16, 61, true),
        (CompletionStatus::Successful, 0x43, 60, 16, 60, true),
        (CompletionStatus::Successful, 0, 4, 0, 0, true),
        (CompletionStatus::UnsupportedRequest, 0, 128, 16, 64, true),
    ] {
        let completion = CompletionHeader {
            completer: Bdf::default(),
            status,
            byte_count,
            lower_address,
            requester: Bdf::default(),
            tag: 0,
            length_dw,
        };
        assert_eq!((completion.bytes_here(), completion.is_last()), (here, is_last), "{completion}");
    }
    // From the first enabled byte to the last (table 2-40).
    for (address, len, dws, enables) in [
        (0x1000, 8, 2, (0xf, 0xf)),
        (0x1000, 4, 1, (0xf, 0)),
        (0x1001, 2, 1, (6, 0)),
        (0x1003, 4, 2, (8, 7)),
        (0x1002, 0, 1, (0, 0)),
    ] {
        let request = MemoryRequest::for_bytes(Bdf::default(), 0, address, len);
        assert_eq!((request.length_dw, (request.first_be, request.last_be)), (dws, enables));
        let begin = if len == 0 { address & !3 } else { address };
        assert_eq!(
            (request.byte_range(), request.completion_byte_count()),
            ((begin, len), len.max(1) as u16)
        );
    }
}

pub(crate) fn any_bdf() -> impl Strategy<Value = Bdf> + Clone {
    any::<u16>().prop_map(Bdf::from_bits)
}

fn any_memory() -> impl Strategy<Value = MemoryRequest> {
    let page = prop_oneof![0u64..1 << 20, 0u64..1 << 52];
    (any_bdf(), 0u16..1024, page, 0u64..4096, 0u32..=4096).prop_map(|(id, tag, page, start, len)| {
        MemoryRequest::for_bytes(id, tag, (page << 12) + start, len.min(4096 - start as u32))
    })
}

fn any_completion() -> impl Strategy<Value = CompletionHeader> {
    let status = prop_oneof![
        Just(CompletionStatus::Successful),
        Just(CompletionStatus::UnsupportedRequest),
        Just(CompletionStatus::ConfigRetry),
        Just(CompletionStatus::CompleterAbort)
    ];
    (any_bdf(), status, 1u16..=4096, 0u8..128, any_bdf(), 0u16..1024, 1u16..=1024).prop_map(
        |(completer, status, byte_count, lower_address, requester, tag, length_dw)| CompletionHeader {
            completer,
            status,
            byte_count,
            lower_address,
            requester,
            tag,
            length_dw,
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    let routing = prop_oneof![
        Just(Routing::ToRootComplex),
        Just(Routing::ByAddress),
        Just(Routing::ById),
        Just(Routing::Broadcast),
        Just(Routing::Local),
        Just(Routing::Gathered)
    ];
    (any_bdf(), 0u16..1024, routing, any::<u8>(), any::<[u8; 8]>(), 0u16..=1024).prop_map(
        |(requester, tag, routing, code, content, length_dw)| Message {
            requester,
            tag,
            routing,
            code: MessageCode(code),
            content,
            length_dw,
        },
    )
}

fn any_kind() -> impl Strategy<Value = TlpKind> {
    let io =
        (any_bdf(), 0u16..1024, any::<u32>(), 0u8..16).prop_map(|(requester, tag, address, first_be)| {
            IoRequest { requester, tag, address: address & !3, first_be }
        });
    let config = (any_bdf(), 0u16..1024, any_bdf(), 0u16..1024, 0u8..16, any::<bool>()).prop_map(
        |(requester, tag, target, register, first_be, pass)| ConfigRequest {
            requester,
            tag,
            target,
            register: register * 4,
            first_be,
            config_type: if pass { ConfigType::Type1 } else { ConfigType::Type0 },
        },
    );
    prop_oneof![
        any_memory().prop_map(TlpKind::MemoryRead),
        any_memory().prop_map(TlpKind::MemoryWrite),
        io.clone().prop_map(TlpKind::IoRead),
        io.prop_map(TlpKind::IoWrite),
        config.clone().prop_map(TlpKind::ConfigRead),
        config.prop_map(TlpKind::ConfigWrite),
        any_message().prop_map(TlpKind::Message),
        any_completion().prop_map(|c| TlpKind::Completion(CompletionHeader { length_dw: 0, ..c })),
        any_completion().prop_map(TlpKind::CompletionData),
    ]
}

pub(crate) fn any_tlp() -> impl Strategy<Value = Tlp> {
    let at = prop_oneof![
        Just(AddressType::Untranslated),
        Just(AddressType::TranslationRequest),
        Just(AddressType::Translated)
    ];
    (any_kind(), 0u8..8, any::<[bool; 5]>(), at).prop_map(|(kind, traffic_class, flags, address_type)| {
        let mut tlp = Tlp::new(kind);
        tlp.common.poisoned = flags[0];
        tlp.common.digest = flags[1];
        match kind {
            TlpKind::IoRead(_) | TlpKind::IoWrite(_) | TlpKind::ConfigRead(_) | TlpKind::ConfigWrite(_) => {
                return tlp;
            }
            TlpKind::MemoryRead(_) | TlpKind::MemoryWrite(_) => tlp.common.address_type = address_type,
            _ => {}
        }
        tlp.common.traffic_class = traffic_class;
        tlp.common.relaxed_ordering = flags[2];
        tlp.common.no_snoop = flags[3];
        tlp.common.id_based_ordering = flags[4];
        tlp
    })
}

proptest! {
    #[test]
    fn round_trip(tlp in any_tlp()) {
        prop_assert_eq!(tlp.check(), Ok(()));
        let buf = bytes(&tlp);
        prop_assert_eq!(Tlp::parse(&buf), Ok((tlp, tlp.header_len())));
        prop_assert!(!tlp.to_string().is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(buf in proptest::collection::vec(any::<u8>(), 0..24)) {
        if let Ok((tlp, len)) = Tlp::parse(&buf) {
            // What parses is valid, and says the same once written and read again.
            prop_assert_eq!(tlp.check(), Ok(()));
            prop_assert_eq!(len, tlp.header_len());
            prop_assert_eq!(Tlp::parse(&bytes(&tlp)), Ok((tlp, len)));
        }
    }

    #[test]
    fn arbitrary_fields_never_panic(address: u64, length_dw: u16, first_be: u8, last_be: u8, tag: u16) {
        let r = MemoryRequest { requester: Bdf::default(), tag, address, length_dw, first_be, last_be };
        let tlp = Tlp::new(TlpKind::MemoryWrite(r));
        let _ = (tlp.check(), bytes(&tlp), r.byte_range(), tlp.credits(), tlp.to_string());
    }
}
