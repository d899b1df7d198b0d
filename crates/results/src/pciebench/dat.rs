//! Results in the format of pcie-bench's gnuplot scripts: columns separated by spaces below a header line, two empty
//! lines between curves (gnuplot's `index`), and a title line before each distribution.

use std::fmt::Write as _;

use super::{BandwidthRow, Cdf, Contents, LatencyRow, ResultFile, Row, Run};

/// The gnuplot files for result files: names and texts, in order of the files.
pub fn to_dat(files: &[ResultFile]) -> Vec<(String, String)> {
    let text = |file: &ResultFile| match &file.contents {
        Contents::Latency(_) | Contents::Bandwidth(_) => rows(file),
        Contents::Cdf(sections) => {
            let details = file.name.replace("_cdf.csv", ".csv");
            let runs = files.iter().find(|other| other.name == details).map(ResultFile::rows);
            distributions(sections, &runs.unwrap_or_default())
        }
    };
    files.iter().map(|file| (file.name.replace(".csv", ".dat"), text(file))).collect()
}

fn rows(file: &ResultFile) -> String {
    let mut text = match &file.contents {
        Contents::Latency(_) => {
            "#        Test  PAT   Cache HO DO WinSZ   SZ     TAvg    Avg   Med   Min   Max   95% 99.9%   TAvg(ns) Avg(ns) Med(ns) \
             Min(ns) Max(ns) 95%(ns) 99.9%(ns)    #outliers   #samples\n"
        }
        _ => {
            "#      Test  PAT   Cache HO DO WinSZ   SZ     Time(cyc)      Time    Bytes     Trans   BW (GB/s)    Trans/s\n"
        }
    }
    .to_owned();
    let details = file.name.contains("_details");
    let mut before: Option<Run> = None;
    for row in file.rows() {
        let run = *row.run();
        if before.is_some_and(|before| begins_anew(&before, &run, details)) {
            text.push_str("\n\n");
        }
        before = Some(run);
        // Writing to a string cannot fail.
        let _ = match &row {
            Row::Latency(row) => latency(&mut text, row),
            Row::Bandwidth(row) => bandwidth(&mut text, row),
        };
    }
    text
}

/// Whether a run starts a new curve: another test or cache state, or the varied parameter restarts. A details table
/// has no curves.
fn begins_anew(before: &Run, run: &Run, details: bool) -> bool {
    let of = |run: &Run| [run.window.get(), run.transfer.get(), run.host_offset, run.device_offset];
    let pairs: Vec<(u64, u64)> = of(before).into_iter().zip(of(run)).filter(|(a, b)| a != b).collect();
    let is_back = pairs.len() > 1 || pairs.iter().any(|(before, now)| now < before);
    before.test != run.test || !details && (before.cache != run.cache || is_back)
}

fn begin(run: &Run, width: usize) -> String {
    format!(
        "{:>width$} {:>4} {:>7} {:>2} {:>2} {:>5} {:>4}",
        run.test.to_string(),
        run.pattern.to_string(),
        run.cache.to_string(),
        run.host_offset,
        run.device_offset,
        run.window.get(),
        run.transfer.get()
    )
}

fn latency(text: &mut String, row: &LatencyRow) -> std::fmt::Result {
    let (c, n) = (&row.cycles, &row.ns);
    // Single samples are whole cycles; pcie-bench truncates their nanoseconds.
    writeln!(
        text,
        "{} {:>8.1} {:>6.1} {:>5.0} {:>5.0} {:>5.0} {:>5.0} {:>5.0} {:>10.1} {:>7.1} {:>7.0} {:>7.0} {:>7.0} {:>7.0} {:>9.0} {:>12} {:>10}",
        begin(&row.run, 12),
        c.total_average,
        c.average,
        c.median,
        c.minimum,
        c.maximum,
        c.p95,
        c.p999,
        n.total_average,
        n.average,
        n.median.floor(),
        n.minimum.floor(),
        n.maximum.floor(),
        n.p95.floor(),
        n.p999.floor(),
        row.outliers,
        row.samples
    )
}

fn bandwidth(text: &mut String, row: &BandwidthRow) -> std::fmt::Result {
    writeln!(
        text,
        "{} {:>13} {:>13.3} {:>9} {:>9} {:>11.3} {:>10.1}",
        begin(&row.run, 10),
        row.cycles,
        row.ns,
        row.bytes,
        row.transactions,
        row.gbit_per_s,
        row.transactions_per_s
    )
}

fn distributions(sections: &[Cdf], rows: &[Row]) -> String {
    let mut text = String::from("#  cycles       ns        cdf\n");
    for (n, section) in sections.iter().enumerate() {
        if n > 0 {
            text.push_str("\n\n");
        }
        if let Some(run) = rows.get(n).map(Row::run) {
            let cache = run.cache.to_string().to_lowercase();
            let (transfer, window) = (run.transfer.get(), run.window.get());
            let _ = writeln!(text, "#test={} trans_sz={transfer} win_sz={window} cache={cache}", run.test);
        }
        for point in &section.points {
            let _ = writeln!(text, "{:>8} {:>8.0} {:.8}", point.cycles, point.ns.round(), point.fraction);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pciebench::suite;
    use units::Bytes;

    /// Number of curves of each kind of file in the reference directory.
    #[test]
    fn curves_are_apart_as_the_scripts_count_them() {
        let curves = |name: &str| {
            let file = suite().into_iter().find(|file| file.name == name).unwrap();
            let pairs = file.runs.windows(2);
            1 + pairs.filter(|pair| begins_anew(&pair[0], &pair[1], name.contains("_details"))).count()
        };
        for (name, wanted) in [
            ("bw_dma_off_rd.csv", 14),
            ("bw_dma_sz_sweep.csv", 3),
            ("bw_dma_win_sweep_rd_rnd_64.csv", 4),
            ("lat_cmd_details.csv", 2),
            ("lat_cmd_off_rd.csv", 8),
            ("lat_cmd_sizes.csv", 2),
            ("lat_dma_sizes_byte_inc.csv", 4),
            ("lat_dma_sweep_rd_rnd_64.csv", 4),
        ] {
            assert_eq!(curves(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_line_has_as_many_columns_as_names() {
        let run = suite().into_iter().find(|file| file.name == "bw_dma_sz_sweep.csv").unwrap().runs[0];
        let row = BandwidthRow {
            run: Run { window: Bytes::new(8192), ..run },
            cycles: 150_139_456,
            ns: 125_116_213.333,
            bytes: 134_217_728,
            transactions: 8_388_608,
            gbit_per_s: 8.582,
            transactions_per_s: 67_046_530.4,
        };
        let file = ResultFile {
            name: "bw_dma_sz_sweep.csv".into(),
            contents: Contents::Bandwidth(vec![row]),
            line_ending: crate::pciebench::LineEnding::CrLf,
        };
        let dat = to_dat(&[file]);
        assert_eq!(dat[0].0, "bw_dma_sz_sweep.dat");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = words(dat[0].1.lines().nth(1).unwrap());
        let wanted = " BW_DMA_RD Rand   HWarm  0  0  8192   16     150139456 125116213.333 134217728   8388608       8.582 67046530.4";
        assert_eq!(line, words(wanted));
    }
}
