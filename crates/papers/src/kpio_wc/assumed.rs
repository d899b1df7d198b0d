//! Report section: the influence of parameters that are assumed or taken from a related machine.

use results::report::{DataTable, Section};

use super::{Values, lines, newer, sizes};
use crate::Options;

const PATH: &str = "change.host.root_complex";

/// Message size from which a descriptor is faster than uncached writes, if the host needs this long to accept an
/// uncached write.
fn crossover(options: &Options, values: &Values, accept: &str) -> Result<String, String> {
    let change_host = format!("{PATH}.uncached_accept = \"{accept}\"");
    let uncached = sizes::uncached_latencies(options, &change_host)?;
    let is_behind = |&(message, uncached): &(u32, f64)| {
        values.get(&format!("latency/dma/{message}")).is_some_and(|dma| *dma < uncached)
    };
    Ok(uncached.into_iter().find(is_behind).map_or("none".into(), |(message, _)| format!("{message} B")))
}

/// Speedup of ten buffers over one, if the host needs this long to accept a cache line.
fn gain(options: &Options, accept: &str) -> Result<String, String> {
    let change_host = format!("{PATH}.outbound_accept = \"{accept}\"");
    let of = |buffers| lines::papers_gbit(options, buffers, &change_host);
    Ok(format!("{:.2} times", of(10)? / of(1)?))
}

/// Throughput of one core through 20 buffers over Gen4 x16.
fn widest(options: &Options, change: &str) -> Result<String, String> {
    let link = newer::Link { generation: 4, width: 16 };
    let gbit = lines::newer_gbit(options, link, 20, &format!("{PATH}.{change}"))?;
    Ok(format!("{gbit:.1} Gbit/s"))
}

/// Builds the report section; `values` come from all experiments.
pub fn section(options: &Options, values: &Values) -> Result<Section, String> {
    let row = |what: &str, figure: &str, result: Result<String, String>| {
        result.map(|result| vec![what.to_owned(), figure.to_owned(), result])
    };
    let (uncached, pipelining) = ("uncached writes and descriptors cross at", "ten buffers against one");
    let wide = "one core, 20 buffers, Gen4 x16";
    let rows = vec![
        row(uncached, "uncached_accept = 91 ns, as a line's", crossover(options, values, "91 ns")),
        row(uncached, "uncached_accept = 135 ns, as in the file", crossover(options, values, "135 ns")),
        row(uncached, "uncached_accept = 180 ns", crossover(options, values, "180 ns")),
        row(pipelining, "outbound_accept = 30 ns", gain(options, "30 ns")),
        row(pipelining, "outbound_accept = 91 ns, as in the file", gain(options, "91 ns")),
        row(pipelining, "outbound_accept = 150 ns", gain(options, "150 ns")),
        row(pipelining, "outbound_accept = 200 ns", gain(options, "200 ns")),
        row(
            wide,
            "posted_places = 16, outbound_latency = 100 ns, as in the file",
            widest(options, "posted_places = 16"),
        ),
        row(wide, "posted_places = 64", widest(options, "posted_places = 64")),
        row(wide, "outbound_latency = 50 ns", widest(options, "outbound_latency = \"50 ns\"")),
    ];
    Ok(Section {
        title: "What assumed figures decide".into(),
        prose: vec![
            "Some figures of the host are not the paper's and were measured on a relative or assumed: how long the root \
             complex takes to accept a line and an uncached store, how many posted writes of cores a port holds, and how \
             long it takes to pass them on. Nothing was fitted to what they decide; here is how far that moves with \
             them."
                .into(),
        ],
        tables: vec![DataTable {
            title: String::new(),
            header: ["result", "figure of the machine", "comes to"].map(String::from).to_vec(),
            rows: rows.into_iter().collect::<Result<_, _>>()?,
            numbers_from: 2,
        }],
        ..Section::default()
    })
}
