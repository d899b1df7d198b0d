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
