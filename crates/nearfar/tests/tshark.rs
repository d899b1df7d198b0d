//! An independent reader, Wireshark's `tshark`, reads the captures of our wires as meant.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::scenario::{HEAD, cable, host, host_with_nic, loaded, program};
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{self, FinishedProgram};
use nearfar::progress::Silent;
use nearfar::trace::{Decoded, Row, Span, computers, csv, pcapng};
use needs::Need;

/// What tshark says of the packets in `file`, a line for each with these fields; checksums are checked.
fn read(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["-T", "fields"]);
    for check in ["eth.check_fcs", "ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
        tshark.args(["-o", &format!("{check}:TRUE")]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let said = tshark.output().expect("tshark is installed");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).lines().map(ToOwned::to_owned).collect()
}

fn run(folder: &Path, text: &str) -> Vec<FinishedProgram> {
    let mut setup = loaded(text);
    setup.folder = files::Folder::new(folder);
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    for done in &done {
        assert!(done.outcome.is_ok(), "{done:?}");
    }
    done
}

/// Datagrams of the least, an odd and the greatest size, at both ends of a switch.
fn datagrams_are_whole_at_every_port() {
    for size in [60, 101, 1514] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("datagrams.pcapng");
        let captures =
            ["a", "s:1", "b:1"].map(|port| format!("{{ port = \"{port}\", file = \"datagrams.pcapng\" }}"));
        let head = format!("{HEAD}switch = [{{ name = \"s\" }}]\ncapture = [{}]\n", captures.join(", "));
        let ends = cable("a", "s", "") + &cable("s", "b:1", "");
        let a = host("a", "dell-t430", "device = [{ nic = \"connectx4\" }]");
        let b = host("b", "dell-t430", "device = [{ nic = \"82599\" }]");
        let command = format!("pktgen -n 10 -s {size} -m 02:00:00:01:00:02");
        run(folder.path(), &[head, ends, a, b, program("a", "0", &command)].concat());
        let fields =
            ["frame.interface_name", "frame.len", "eth.fcs.status", "ip.checksum.status", "_ws.malformed"];
        let mut lines = read(&file, &fields);
        lines.sort_unstable();
        let port = |port| std::iter::repeat_n(format!("{port}\t{}\t1\t1\t", size + 4), 10);
        assert_eq!(lines, ["a", "b:1", "s:1"].into_iter().flat_map(port).collect::<Vec<_>>());
    }
}

/// A stream as large segments, cut by the card, with its opening, its end, an echo and datagrams: there is nothing to say
/// against any of it.
fn nothing_is_wrong_with_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stream.pcapng");
    let head = format!("{HEAD}capture = [{{ port = \"b\", file = \"stream.pcapng\" }}]\n");
    let programs = [
        ("b", "netserver"),
        ("a", "ping -c 2 10.0.0.2"),
        ("a", "netperf -H 10.0.0.2 -l 0.0002"),
        ("a", "netperf -H 10.0.0.2 -t UDP_RR -l 0.0005"),
    ];
    let programs = programs.map(|(host, command)| program(host, "0-3", command)).concat();
    let done = run(
        folder.path(),
        &[head, host_with_nic("a"), host_with_nic("b"), cable("a", "b", ""), programs].concat(),
    );
    let netperf = done.iter().find(|done| done.run.starts_with("netperf")).expect("it ran");
    assert!(
        netperf.outcome.as_ref().unwrap().get("throughput").is_some_and(|mbit_per_s| mbit_per_s > 1_000.0)
    );
    let fields = [
        "eth.fcs.status",
        "ip.checksum.status",
        "tcp.checksum.status",
        "_ws.expert.severity",
        "tcp.flags.syn",
        "udp.checksum.status",
    ];
    // Severities from "warning" on; notes and chats are what tshark says of any connection.
    const WARNING: u32 = 0x60_0000;
    let (mut segments, mut opened, mut datagrams) = (0, 0, 0);
    for line in read(&file, &fields) {
        let fields: Vec<&str> = line.split('\t').collect();
        assert!(fields[0] == "1" && matches!(fields[1], "1" | "") && matches!(fields[2], "1" | ""), "{line}");
        let severities = fields[3].split(',').filter_map(|severity| severity.parse::<u32>().ok());
        assert!(severities.max().unwrap_or(0) < WARNING, "{line}");
        segments += u32::from(fields[2] == "1");
        opened += u32::from(matches!(fields[4], "1" | "True"));
        assert!(matches!(fields[5], "1" | ""), "{line}");
        datagrams += u32::from(fields[5] == "1");
    }
    // Two control connections and the stream, each with a SYN and its answer.
    assert!(
        segments > 100 && opened == 6 && datagrams > 10,
        "{segments} segments, {opened} SYNs, {datagrams} datagrams"
    );
}

/// Packet by packet, Wireshark reads from the bytes what the listing says, by our script; and completions find their reads.
fn packets_of_pcie_links_are_read_as_they_are_listed() {
    const FIELDS: [(&str, &str); 11] = [
        ("pcie.type", "type"),
        ("pcie.sequence", "sequence"),
        ("pcie.tag", "tag"),
        ("pcie.requester", "requester"),
        ("pcie.completer", "completer"),
        ("pcie.target", "target"),
        ("pcie.length", "length_bytes"),
        ("pcie.credit_class", "credit_class"),
        ("pcie.byte_count", "byte_count"),
        ("pcie.data", "payload"),
        ("pcie.message", ""),
    ];
    let folder = tempfile::tempdir().unwrap();
    // Reads, writes, interrupts; and what boots a host, by configuration requests, where there are any after that.
    for scenario in ["pktgen", "fio-randread"] {
        let library = Library::built_in();
        let setup =
            ComputerSetup::load(&library, &Doc::<ComputerScenario>::load(&library, scenario).unwrap());
        let setup = setup.unwrap_or_else(|error| panic!("{}", error.render(false)));
        let span = Span { packets: 2_000, ..Span::default() };
        let (seen, _) = computers::trace(&setup, span, &[], &Silent).unwrap();
        let file = folder.path().join("pcie.pcapng");
        std::fs::write(&file, pcapng::capture(&seen.capture, "a comment").unwrap()).unwrap();
        let mut tshark = Command::new("tshark");
        tshark.args(["-2", "-X"]).arg(concat!(
            "lua_script:",
            env!("CARGO_MANIFEST_DIR"),
            "/../../tools/pcie.lua"
        ));
        tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=;"]);
        let extra = ["frame.interface_name", "_ws.expert", "_ws.lua.error", "pcie.request_in"];
        for field in FIELDS.iter().map(|(field, _)| *field).chain(extra) {
            tshark.args(["-e", field]);
        }
        let said = tshark.output().expect("tshark is installed");
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && !errors.contains("Lua"), "{errors}");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let rows: Vec<Row<'_>> = Row::all(&seen.capture).collect();
        assert_eq!(text.lines().count(), rows.len());
        let (mut answers, mut kinds) = (0, BTreeSet::new());
        for (line, row) in text.lines().zip(&rows) {
            let read: Vec<&str> = line.split(';').collect();
            let listed = csv::values(row);
            let listed = |name: &str| {
                let at = csv::COLUMNS.iter().position(|&(column, _)| column == name);
                at.and_then(|at| listed[at].as_ref()).map_or_else(String::new, ToString::to_string)
            };
            for ((field, column), &value) in FIELDS.iter().zip(&read) {
                // Of a TLP the listing says which credits it takes; of a message its header has no length that means anything.
                let is_ours = *field == "pcie.credit_class" && matches!(row.decoded, Decoded::Tlp { .. });
                let is_message = *column == "length_bytes" && read[0].starts_with("Msg");
                if !column.is_empty() && !is_ours && !is_message {
                    assert_eq!(value, listed(column), "{field} of {line}, {row:?}");
                }
            }
            assert_eq!(read[FIELDS.len()..FIELDS.len() + 3], [row.link, "", ""], "{line}");
            answers += usize::from(!read[FIELDS.len() + 3].is_empty());
            kinds.insert(read[0].to_owned());
        }
        let completions = rows.iter().filter(|row| row.kind() == "CplD").count();
        assert!(answers > 0 && completions - answers < 40, "{answers} of {completions} found their read");
        assert!(kinds.len() >= 6, "{kinds:?}");
    }
}

needs::tests!(
    Need::Program("tshark");
    packets_of_pcie_links_are_read_as_they_are_listed,
    datagrams_are_whole_at_every_port,
    nothing_is_wrong_with_a_stream,
);
