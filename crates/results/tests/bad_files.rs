//! Everything that can be wrong with a result file is told, with file, row and remedy.

use proptest::prelude::*;
use results::pciebench::{
    BandwidthRow, Cache, Cdf, Contents, LatencyRow, LineEnding, Pattern, Run, Test, read_bytes,
    read_directory, to_csv,
};
use std::path::Path;
use units::{Bytes, Frequency};

const BANDWIDTH: &str = "Test,PAT,Cache,HO,DO,WinSZ,SZ,Time(cyc),Time,Bytes,Trans,BW (GB/s),Trans/s\r\n\
    BW_DMA_RD,Rand,Cold,0,0,4096,64,182587648,152156373.33333334,536870912,8388608,28.227324310568914,55131492.79407991\r\n";
const LATENCY: &str = "Test,PAT,Cache,HO,DO,WinSZ,SZ,TAvg,Avg,Med,Min,Max,95%,99.9%,TAvg(ns),Avg(ns),Med(ns),Min(ns),Max(ns),95%(ns),99.9%(ns),#outliers,#samples\r\n\
    LAT_CMD_RD,Rand,Cold,0,0,1024,8,1200,600.0,576.0,540,1080,576.0,840.0,1000.0,500.0,480.0,450.0,900.0,480.0,700.0,0,2097152\r\n";

/// The message for a file of this name and text.
fn message(name: &str, text: &str) -> String {
    read_bytes(Path::new(name), text.as_bytes()).expect_err("the file is bad").to_string()
}

#[test]
fn the_examples_are_good() {
    assert!(read_bytes(Path::new("bw_dma_win_sweep_rd_rnd_64.csv"), BANDWIDTH.as_bytes()).is_ok());
    assert!(read_bytes(Path::new("lat_cmd_sweep_rd_rnd_08.csv"), LATENCY.as_bytes()).is_ok());
    assert!(read_bytes(Path::new("mine.csv"), LATENCY.as_bytes()).is_ok());
}

#[test]
fn whole_files() {
    assert!(message("a.csv", "").contains("a.csv: the file is empty; run the benchmark again"));
    assert!(message("a.csv", " \r\n").contains("empty"));
    let header = BANDWIDTH.lines().next().unwrap();
    assert!(message("a.csv", &format!("{header}\r\n")).contains("no rows"));
    let renamed = message("a.csv", &BANDWIDTH.replace("WinSZ", "Window"));
    assert!(renamed.contains("column 6 is `Window` where `WinSZ` belongs"), "{renamed}");
    let swapped = message("a.csv", &LATENCY.replacen("Med,Min", "Min,Med", 1));
    assert!(swapped.contains("column 10 is `Min` where `Med` belongs"), "{swapped}");
    let bytes = read_bytes(Path::new("a.csv"), &[0x1f, 0x8b, 0xff]).unwrap_err().to_string();
    assert!(bytes.contains("not text (byte 1"), "{bytes}");
}

#[test]
fn rows() {
    let in_row = |text: String, part: &str| {
        let message = message("x.csv", &text);
        assert!(message.starts_with("x.csv, row 1 (line 2): ") && message.contains(part), "{message}");
    };
    in_row(BANDWIDTH.trim_end().into(), "truncated");
    in_row(BANDWIDTH.replace(",8388608,", ","), "12 columns where the header has 13");
    in_row(BANDWIDTH.replace(",Cold,", ",Frosty,"), "`Frosty` is not one of Cold, DThrash, DWarm, HWarm");
    in_row(BANDWIDTH.replace(",4096,", ",4k,"), "column `WinSZ` holds `4k` where a whole number belongs");
    in_row(BANDWIDTH.replace("28.22", "inf28.22"), "column `BW (GB/s)` holds");
    in_row(BANDWIDTH.replace("28.22", "29.22"), "is not 8 · `Bytes` / `Time`");
    in_row(BANDWIDTH.replace(",4096,64,", ",32,64,"), "a window of 32 B is smaller than a transfer of 64 B");
    // What the firmware refuses would never end, or wrap around in the buffer.
    in_row(BANDWIDTH.replace(",0,0,4096,64,", ",4095,0,8192,64,"), "at host offset 4095 B ends beyond 4 KiB");
    in_row(BANDWIDTH.replace(",4096,64,", ",99999999999,64,"), "larger than pcie-bench's buffer of 64 MiB");
    in_row(BANDWIDTH.replace("BW_DMA_RD", "LAT_DMA_RD"), "promises a bandwidth test (by its columns)");
    in_row(LATENCY.replace("540,1080", "1080,540"), "ascending");
    in_row(LATENCY.replace(",450.0,", ",451.0,"), "do not agree on the clock");
    in_row(LATENCY.replace(",600.0,", ",-600.0,"), "column `Avg` holds `-600.0`");
}

#[test]
fn names_that_promise_something_else() {
    let cases = [
        ("lat_cmd_sizes.csv", BANDWIDTH, "promises tests `LAT_CMD_*`, the row has BW_DMA_RD"),
        ("bw_dma_win_sweep_wr_rnd_64.csv", BANDWIDTH, "promises test `BW_DMA_WR`, the row has BW_DMA_RD"),
        ("bw_dma_win_sweep_rd_rnd_128.csv", BANDWIDTH, "promises transfers of 128 B, the row has 64 B"),
        ("lat_dma_details.csv", LATENCY, "promises tests `LAT_DMA_*`"),
        ("lat_cmd_details_cdf.csv", LATENCY, "promises a distribution"),
    ];
    for (name, text, part) in cases {
        let message = message(name, text);
        assert!(message.contains(part) && message.contains("mislabelled"), "{message}");
    }
}

#[test]
fn distributions() {
    let cdf = |rows: &str| message("x_cdf.csv", &format!("cycles,ns,cdf\r\n{rows}"));
    assert!(cdf("16,13.3,0.5\r\n").contains("does not begin at 0"));
    assert!(cdf("16,13.3,0\r\n16,13.3,0.5\r\n").contains("does not reach 1"));
    assert!(cdf("16,13.3,0\r\n16,13.3,0.5\r\n32,26.7,0.4\r\n").contains("falls"));
    assert!(
        cdf("16,13.3,0\r\n16,13.3,0.5\r\n16,13.3,0\r\n").contains("begins before the one above reached 1")
    );
}

#[test]
fn directories() {
    let missing = read_directory(Path::new("/nonexistent/results")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/results: cannot be read"), "{missing}");
    let none = read_directory(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
    assert!(none.contains("no pcie-bench result file"), "{none}");
}

fn runs(latency: bool) -> impl Strategy<Value = Run> {
    let tests: Vec<Test> = Test::ALL.iter().copied().filter(|t| t.is_latency() == latency).collect();
    (
        prop::sample::select(tests),
        prop::sample::select(Pattern::ALL.to_vec()),
        prop::sample::select(Cache::ALL.to_vec()),
        0u64..64,
        0u64..64,
        1u64..4032,
        0u64..1 << 19,
    )
        .prop_map(|(test, pattern, cache, host_offset, device_offset, transfer, more)| Run {
            test,
            pattern,
            cache,
            host_offset,
            device_offset,
            window: Bytes::new(transfer + host_offset + more * 64),
            transfer: Bytes::new(transfer),
        })
}

fn reads_back(contents: Contents, ending: LineEnding) {
    let text = to_csv(&contents, ending);
    let file = read_bytes(Path::new("mine.csv"), text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(file.contents, contents);
    assert_eq!(file.line_ending, ending);
}

proptest! {
    /// What is written reads back, whatever was simulated.
    #[test]
    fn bandwidth_reads_back(run in runs(false), cycles in 1u64..1 << 40, transactions in 1u64..1 << 24, mhz in 100u64..4000) {
        let row = BandwidthRow::from_cycles(run, cycles, Frequency::mhz(mhz), transactions);
        reads_back(Contents::Bandwidth(vec![row]), LineEnding::CrLf);
    }

    #[test]
    fn latency_reads_back(
        run in runs(true), mut samples in prop::collection::vec(1u64..1 << 30, 1..200), mhz in 100u64..4000,
    ) {
        let total = samples.iter().sum::<u64>() * 2;
        let row = LatencyRow::from_samples(run, &mut samples, total, Frequency::mhz(mhz)).unwrap();
        reads_back(Contents::Latency(vec![row]), LineEnding::Lf);
    }

    #[test]
    fn distributions_read_back(counts in prop::collection::btree_map(1u64..1 << 30, 1u64..1000, 1..50)) {
        let cdf = Cdf::from_histogram(counts, Frequency::mhz(1200));
        reads_back(Contents::Cdf(vec![cdf.clone(), cdf]), LineEnding::CrLf);
    }

    /// Nothing that can stand in a file makes the reader panic.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_bytes(Path::new("lat_cmd_sizes.csv"), &bytes);
    }

    /// A good file with one byte changed is an error or differs in its rows.
    #[test]
    fn a_changed_byte_is_seen(at in 0usize..LATENCY.len(), byte in b' '..b'~') {
        let mut bytes = LATENCY.as_bytes().to_vec();
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        let good = read_bytes(Path::new("mine.csv"), LATENCY.as_bytes()).unwrap();
        if let Ok(file) = read_bytes(Path::new("mine.csv"), &bytes) {
            // Another spelling of the same number is no change.
            let line = |b: &[u8]| String::from_utf8_lossy(b).lines().nth(1).unwrap_or_default().to_owned();
            let numbers = |b: &[u8]| line(b).split(',').map(|f| f.parse::<f64>().ok()).collect::<Vec<_>>();
            let same = numbers(&bytes) == numbers(LATENCY.as_bytes());
            prop_assert!(file.contents != good.contents || same, "{}", line(&bytes));
        }
    }
}
