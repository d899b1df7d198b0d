//! `nearfar model`: the maximum goodput of a link, in closed form.

use std::path::PathBuf;
use std::process::ExitCode;

use analytic::{Direction, Driver, Generation, Link, Nic, Omission, Traffic};
use results::claims::Sample;
use results::report::{Chart, Curve, Scale};
use units::Bytes;

use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, output};

/// Print pcie-bench's closed-form model: goodput over transfer size, and of NICs.
///
/// The model has no latency, tags or credits. It includes acknowledgements and credit updates as often as the
/// specification recommends, which is more than links send: an engine without overheads may exceed it by up to a
/// tenth.
///
/// NICs include all that they exchange with the host, also the requests for their RX descriptors. pcie-bench's public
/// code omits those requests by mistake, so its NICs are faster: at 64 B on Gen3 x8 13.23, 18.44 and 21.51 Gbit/s
/// instead of 12.19, 16.47 and 18.88. Columns with a star, and keys with `without_rx_descriptor_reads`, follow that
/// code.
///
/// The acknowledgement rate follows the specification's formula. Two entries of the specification's tables, for Gen1
/// x32 with an MPS of 2048 B and Gen2 x32 with 4096 B, do not match it, unlike all others, and look like misprints.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar model
  nearfar model --generation 4 --lanes 16 --mps 512 --mrrs 1024")]
pub struct ModelArgs {
    /// PCIe generation, 1 to 6.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=6))]
    generation: u8,
    /// Number of lanes of the link.
    #[arg(long, default_value_t = 8)]
    lanes: u32,
    /// Maximum payload size in bytes.
    #[arg(long, default_value_t = 256)]
    mps: u64,
    /// Maximum read request size in bytes.
    #[arg(long, default_value_t = 512)]
    mrrs: u64,
    #[command(flatten)]
    records: Records,
    /// Plot the rates over the transfer size, as SVG, or as PDF for FILE.pdf.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
}

pub fn run(_: &Common, arguments: &ModelArgs) -> Result<ExitCode, Failure> {
    let to_stdout = arguments.records.places(&[("--plot", arguments.plot.as_deref())])?.to_stdout;
    let generation = Generation::ALL[usize::from(arguments.generation - 1)];
    let (mps, mrrs) = (Bytes::new(arguments.mps), Bytes::new(arguments.mrrs));
    let link = Link::new(generation, arguments.lanes, mps, mrrs).map_err(Failure::new)?;
    let nics = [Nic::simple(), Nic::modern(Driver::Kernel), Nic::modern(Driver::Dpdk)];
    let header = [
        "transfer",
        "write",
        "read",
        "both",
        "simple NIC",
        "kernel NIC",
        "DPDK NIC",
        "simple NIC*",
        "kernel NIC*",
        "DPDK NIC*",
    ];
    let mut table = TextTable::new(header, Fit::Fold(1)).numbers(0..header.len());
    let mut json = Vec::new();
    let mut curves: Vec<Curve> = header[1..]
        .iter()
        .map(|label| Curve { label: (*label).into(), simulated: Vec::new(), measured: Vec::new() })
        .collect();
    for size in [64, 128, 256, 257, 512, 1024, 1280, 1518, 2048] {
        let bytes = Bytes::new(size);
        let plain = [Direction::Write, Direction::Read, Direction::Both].map(|d| link.goodput(d, bytes));
        let of = |omission| nics.map(|nic| nic.goodput(&link, Traffic::Both, bytes, omission));
        let (whole, as_public) = (of(Omission::None), of(Omission::RxDescriptorReads));
        let all = plain.iter().chain(&whole).chain(&as_public);
        let rates: Vec<f64> = all.map(|rate| rate.as_gbit_per_s_f64()).collect();
        let mut row = serde_json::json!({"transfer_bytes": size});
        for (name, rate) in header[1..].iter().zip(&rates) {
            let name = name.to_lowercase().replace(' ', "_").replace('*', "_without_rx_descriptor_reads");
            row[format!("{name}_gbit_per_s")] = (*rate).into();
        }
        json.push(row);
        for (curve, &y) in curves.iter_mut().zip(&rates) {
            curve.simulated.push(Sample { x: size as f64, y, low: None, high: None });
        }
        let rates = rates.iter().map(|rate| format!("{rate:.2}"));
        table.add(std::iter::once(bytes.to_string()).chain(rates).collect());
    }
    let provenance = output::provenance(0, &[], &machine::Library::built_in());
    arguments.records.write(json, &provenance)?;
    let chart = Chart {
        id: "model".into(),
        title: format!("What a Gen{} x{} link carries at best", arguments.generation, arguments.lanes),
        text: String::new(),
        x: ("transfer size (bytes)".into(), Scale::Log2),
        names: Vec::new(),
        y: ("goodput (Gbit/s)".into(), Scale::Linear),
        from_zero: true,
        rings: String::new(),
        curves,
    };
    output::plot(arguments.plot.as_deref(), &[chart], &provenance)?;
    if !to_stdout {
        output::print(&format!(
            "Goodput in Gbit/s; raw {:.2}, for TLPs {:.2}. \"both\" and NICs: per direction.\n",
            link.raw_rate().as_gbit_per_s_f64(),
            link.tlp_rate().as_gbit_per_s_f64()
        ));
        output::print(&table.render(output::width()));
        output::print(&output::prose(
            "\n* without the requests that read RX descriptors, as pcie-bench's public code has it by mistake.",
        ));
    }
    Ok(ExitCode::SUCCESS)
}
