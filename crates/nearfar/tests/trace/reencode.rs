//! Reads the CSV back and builds the packets from it.

use std::collections::BTreeMap;

use hardware::link::{LinkId, Packet, Passed, Side};
use nearfar::trace::{Capture, LinkInfo, Row, Span, csv};
use proptest::prelude::*;
use units::Time;
use wire::pcie::dllp::{FlowControl, FlowControlKind, Scale};
use wire::pcie::tlp::message::{MessageCode, Routing};
use wire::pcie::{
    AddressType, Bdf, Common, CompletionHeader, CompletionStatus, ConfigRequest, ConfigType, Dllp, FlowClass,
    Generation, IoRequest, MemoryRequest, Message, Sequence, Tlp, TlpKind, Width,
};

/// Holds the bytes of every shown packet of `capture` against those built from its line of `table`.
pub fn check(capture: &Capture, table: &str) {
    let mut lines = table.lines();
    assert_eq!(lines.next().unwrap(), csv::COLUMNS.map(|(name, _)| name).join(","));
    for (_, passed) in capture.shown() {
        let line = lines.next().expect("a line for each packet");
        let values: Vec<&str> = line.split(',').collect();
        assert_eq!(values.len(), csv::COLUMNS.len(), "{line}");
        let of: BTreeMap<&str, &str> = csv::COLUMNS.into_iter().map(|(name, _)| name).zip(values).collect();
        match &passed.packet {
            Packet::Tlp { sequence, bytes, .. } => {
                assert_eq!(of["sequence"], sequence.to_string());
                assert_eq!(tlp(&of), bytes.to_vec(), "{line}");
            }
            Packet::Dllp(bytes) => assert_eq!(dllp(&of), *bytes, "{line}"),
        }
    }
    assert_eq!(lines.next(), None);
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn hex(text: &str) -> u8 {
    u8::from_str_radix(text, 16).unwrap()
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| hex(&text[2 * i..2 * i + 2])).collect()
}

fn bdf(text: &str) -> Bdf {
    let (bus, rest) = text.split_once(':').unwrap();
    let (device, function) = rest.split_once('.').unwrap();
    Bdf::new(hex(bus), hex(device), hex(function))
}

fn tlp(of: &BTreeMap<&str, &str>) -> Vec<u8> {
    let has = |name: &str| of["attributes"].split(' ').any(|one| one == name);
    let common = Common {
        traffic_class: number(of["traffic_class"]) as u8,
        relaxed_ordering: has("RO"),
        no_snoop: has("NS"),
        id_based_ordering: has("IDO"),
        poisoned: has("EP"),
        digest: has("TD"),
        address_type: match (has("AT=translated"), has("AT=request")) {
            (true, _) => AddressType::Translated,
            (_, true) => AddressType::TranslationRequest,
            _ => AddressType::Untranslated,
        },
    };
    let (requester, tag) = (bdf(of["requester"]), number(of["tag"]) as u16);
    let length_dw = (number(of["length_bytes"]) / 4) as u16;
    let memory = || MemoryRequest {
        requester,
        tag,
        address: number(of["address"]),
        length_dw,
        first_be: hex(of["first_be"]),
        last_be: hex(of["last_be"]),
    };
    let io =
        || IoRequest { requester, tag, address: number(of["address"]) as u32, first_be: hex(of["first_be"]) };
    let config = |config_type| ConfigRequest {
        requester,
        tag,
        target: bdf(of["target"]),
        register: number(of["address"]) as u16,
        first_be: hex(of["first_be"]),
        config_type,
    };
    let completion = || CompletionHeader {
        completer: bdf(of["completer"]),
        status: match of["status"] {
            "SC" => CompletionStatus::Successful,
            "UR" => CompletionStatus::UnsupportedRequest,
            "CRS" => CompletionStatus::ConfigRetry,
            _ => CompletionStatus::CompleterAbort,
        },
        byte_count: number(of["byte_count"]) as u16,
        lower_address: number(of["lower_address"]) as u8,
        requester,
        tag,
        length_dw,
    };
    let kind = match of["type"] {
        "MRd(32)" | "MRd(64)" => TlpKind::MemoryRead(memory()),
        "MWr(32)" | "MWr(64)" => TlpKind::MemoryWrite(memory()),
        "IORd" => TlpKind::IoRead(io()),
        "IOWr" => TlpKind::IoWrite(io()),
        "CfgRd0" => TlpKind::ConfigRead(config(ConfigType::Type0)),
        "CfgRd1" => TlpKind::ConfigRead(config(ConfigType::Type1)),
        "CfgWr0" => TlpKind::ConfigWrite(config(ConfigType::Type0)),
        "CfgWr1" => TlpKind::ConfigWrite(config(ConfigType::Type1)),
        "Cpl" => TlpKind::Completion(completion()),
        "CplD" => TlpKind::CompletionData(completion()),
        "Msg" | "MsgD" => {
            let words: Vec<&str> = of["message"].split(' ').collect();
            TlpKind::Message(Message {
                requester,
                tag,
                routing: ROUTINGS[number(words[0]) as usize],
                code: MessageCode(hex(words[1])),
                content: bytes(words[2]).try_into().unwrap(),
                length_dw,
            })
        }
        other => panic!("a TLP of type {other}"),
    };
    let tlp = Tlp { common, kind };
    let mut packet = vec![0; tlp.header_len()];
    tlp.emit(&mut packet);
    packet.extend(bytes(of["payload"]));
    if let Some(digest) = of["remark"].strip_prefix("ECRC ") {
        packet.extend(bytes(digest));
    }
    packet
}

const ROUTINGS: [Routing; 6] = [
    Routing::ToRootComplex,
    Routing::ByAddress,
    Routing::ById,
    Routing::Broadcast,
    Routing::Local,
    Routing::Gathered,
];

fn dllp(of: &BTreeMap<&str, &str>) -> [u8; 6] {
    let sequence = || Sequence::new(number(of["sequence"]) as u16);
    match of["type"] {
        "Ack" => Dllp::Ack(sequence()),
        "Nak" => Dllp::Nak(sequence()),
        update => {
            assert!(update.starts_with("UpdateFC-"), "{update}");
            let class = match of["credit_class"] {
                "P" => FlowClass::Posted,
                "NP" => FlowClass::NonPosted,
                _ => FlowClass::Completion,
            };
            let (headers, data) = (number(of["credit_headers"]), number(of["credit_data"]));
            let fc = FlowControl::update(class, headers, Scale::None, data, Scale::None);
            assert_eq!(fc.kind, FlowControlKind::Update);
            Dllp::FlowControl(fc)
        }
    }
    .to_bytes()
}

fn common() -> impl Strategy<Value = Common> {
    (0u8..8, any::<[bool; 5]>(), 0u8..3).prop_map(|(traffic_class, flags, at)| Common {
        traffic_class,
        relaxed_ordering: flags[0],
        no_snoop: flags[1],
        id_based_ordering: flags[2],
        poisoned: flags[3],
        digest: flags[4],
        address_type: [AddressType::Untranslated, AddressType::TranslationRequest, AddressType::Translated]
            [usize::from(at)],
    })
}

fn any_tlp() -> impl Strategy<Value = Tlp> {
    let id = any::<u16>().prop_map(Bdf::from_bits);
    let numbers = (any::<u64>(), any::<u16>(), any::<[u8; 4]>(), 0u16..1024);
    (0u8..9, common(), id.clone(), id, numbers).prop_map(|(kind, mut common, requester, other, numbers)| {
        let (address, length, small, tag) = numbers;
        let address = if small[3] & 1 == 0 { address & 0xffff_ffff } else { address };
        let room = 4096 - (address & 0xfff);
        let memory = MemoryRequest::for_bytes(requester, tag, address, (u64::from(length) % room + 1) as u32);
        let completion = CompletionHeader {
            completer: other,
            status: CompletionStatus::Successful,
            byte_count: length % 4096 + 1,
            lower_address: small[0] & 0x7f,
            requester,
            tag,
            length_dw: length % 64 + 1,
        };
        let io = IoRequest { requester, tag, address: address as u32 & !3, first_be: small[0] & 0xf };
        let config = ConfigRequest {
            requester,
            tag,
            target: other,
            register: length & 0xffc,
            first_be: small[1] & 0xf,
            config_type: if small[2] & 1 == 0 { ConfigType::Type0 } else { ConfigType::Type1 },
        };
        let message = Message {
            requester,
            tag,
            routing: ROUTINGS[usize::from(small[0]) % 6],
            code: MessageCode(small[1]),
            content: address.to_be_bytes(),
            length_dw: u16::from(small[2] % 3),
        };
        let kind = match kind {
            0 => TlpKind::MemoryRead(memory),
            1 => TlpKind::MemoryWrite(memory),
            2 => TlpKind::CompletionData(completion),
            3 => TlpKind::Completion(CompletionHeader {
                status: CompletionStatus::UnsupportedRequest,
                length_dw: 0,
                ..completion
            }),
            4 => TlpKind::IoRead(io),
            5 => TlpKind::IoWrite(io),
            6 => TlpKind::ConfigRead(config),
            7 => TlpKind::ConfigWrite(config),
            _ => TlpKind::Message(message),
        };
        match kind {
            TlpKind::MemoryRead(_) | TlpKind::MemoryWrite(_) => {}
            TlpKind::IoRead(_) | TlpKind::IoWrite(_) | TlpKind::ConfigRead(_) | TlpKind::ConfigWrite(_) => {
                common = Common { poisoned: common.poisoned, digest: common.digest, ..Common::DEFAULT };
            }
            _ => common.address_type = AddressType::Untranslated,
        }
        Tlp { common, kind }
    })
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let tlp = (any_tlp(), any::<u8>(), 0u16..4096).prop_map(|(tlp, seed, sequence)| {
        let mut bytes = vec![0; tlp.packet_len()];
        let header = tlp.header_len();
        bytes[header..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(seed));
        tlp.emit(&mut bytes);
        Packet::Tlp { sequence: Sequence::new(sequence), bytes: bytes.into(), lcrc: None }
    });
    let dllp = (0u8..3, 0u16..4096, any::<u8>(), 0usize..3).prop_map(|(kind, number, headers, class)| {
        let sequence = Sequence::new(number);
        let fc = FlowControl::update(
            FlowClass::ALL[class],
            u64::from(headers),
            Scale::None,
            u64::from(number),
            Scale::None,
        );
        let dllp = [Dllp::Ack(sequence), Dllp::Nak(sequence), Dllp::FlowControl(fc)][usize::from(kind)];
        Packet::Dllp(dllp.to_bytes())
    });
    prop_oneof![3 => tlp, 1 => dllp]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_printed_is_what_was_sent(packets in proptest::collection::vec(any_packet(), 1..20)) {
        let (id, at) = (LinkId(0), Time::from_ps(7));
        let link = LinkInfo { id, name: "slot".into(), generation: Generation::Gen1, width: Width::X4 };
        let passed = |packet| Passed { link: id, from: Side::Upstream, at, until: at, packet };
        let packets = packets.into_iter().map(passed).collect();
        let capture = Capture { links: vec![link], span: Span::default(), packets, doorbells: Vec::new(), early: None };
        check(&capture, &csv::table(Row::all(&capture)));
    }
}
