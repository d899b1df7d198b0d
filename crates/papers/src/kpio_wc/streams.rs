//! Report section: a TCP stream by cache lines and by descriptors, and its bottleneck.

use nearfar::Silent;
use nearfar::computer;
use results::report::{DataTable, Section};

use crate::{Options, rig};

/// A card with ample credits and lines (assumed).
const DEEP: &str = "change.kpio.lines = 256\nchange.kpio.positions = 512\n";
const CREDITS: &str = "change.link.credits.ph = 64\nchange.link.credits.pd = 512\n";

/// A variant: settings of the driver and of the card.
struct StreamVariant {
    name: &'static str,
    driver: &'static str,
    card: [&'static str; 2],
}

const WAYS: [StreamVariant; 6] = [
    StreamVariant { name: "descriptors", driver: "kpio = \"off\"", card: ["", ""] },
    StreamVariant { name: "lines, counted: 64 lines of room", driver: "kpio = \"all\"", card: ["", ""] },
    StreamVariant {
        name: "lines, the core stalls",
        driver: "kpio = \"all\"\nkpio_format = \"signature\"",
        card: ["", ""],
    },
    StreamVariant { name: "lines, counted: 256 lines of room", driver: "kpio = \"all\"", card: [DEEP, ""] },
    StreamVariant {
        name: "the same with 64 header credits for 8",
        driver: "kpio = \"all\"",
        card: [DEEP, CREDITS],
    },
    StreamVariant {
        name: "descriptors with 64 header credits",
        driver: "kpio = \"off\"",
        card: ["", CREDITS],
    },
];

fn throughput(options: &Options, way: &StreamVariant) -> Result<f64, String> {
    let StreamVariant { driver, card: [a, b], .. } = way;
    // The paper's card with cables on its ports.
    let host = |name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\nmachine = \"i5-2400s\"\n[host.nic_driver]\n{driver}\n\
             [[host.device]]\nnic = \"kpio-fpga\"\nchange.controller.looped = false\n{a}{b}"
        )
    };
    let program = |host: &str, run: &str| {
        format!("[[program]]\nhost = \"{host}\"\ncpus = \"0\"\nstart = \"100 us\"\nrun = \"{run}\"\n")
    };
    let text = [
        host("a"),
        host("b"),
        "[[cable]]\nends = [\"a\", \"b\"]\n".to_owned(),
        program("b", "netserver"),
        program("a", "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.003"),
    ];
    let setup = rig::setup(options, "kpio-wc", &text.concat())?;
    let done = computer::run(&setup, &Silent).map_err(|error| error.to_string())?;
    let outcomes = done.iter().filter_map(|program| program.outcome.as_ref().ok());
    let mbit = outcomes.filter_map(|report| report.get("throughput")).next();
    mbit.map(|mbit| mbit / 1e3).ok_or_else(|| "netperf gives no throughput".to_owned())
}

/// Builds the report section.
pub fn section(options: &Options) -> Result<Section, String> {
    let row =
        |way: &StreamVariant| Ok(vec![way.name.to_owned(), format!("{:.2}", throughput(options, way)?)]);
    let rows: Result<Vec<_>, String> = WAYS.iter().map(row).collect();
    Ok(Section {
        title: "A TCP stream by lines".into(),
        prose: vec![
            "Segments of 1,448 B are frames of 1,514 B, which take 24 lines of 64 B. The paper's card has header credits \
             for eight writes, which come back 877 ns later: a line every 110 ns, as the paper measured, and so at most 4.4 \
             Gbit/s of a stream, however it is sent. Completions, which bring the data of descriptors, wait for no \
             credits. A driver that counts lines has to wait on top of that: the card holds 4 KB, less than three frames, \
             and by the time that its interrupt has been heard they have left. A core that stalls, or a card that holds \
             more, is spared that; with more credits as well, what is left between lines and descriptors is the \
             filling of last lines and TLPs of 64 B where completions carry up to 128 B."
                .into(),
        ],
        tables: vec![DataTable {
            title: "netperf TCP_STREAM between two of the paper's hosts, Gbit/s".into(),
            header: vec!["way".into(), "Gbit/s".into()],
            rows: rows?,
            numbers_from: 1,
        }],
        ..Section::default()
    })
}
