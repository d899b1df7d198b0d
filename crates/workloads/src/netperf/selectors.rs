//! Results by name, as netperf's omni tests print them (`-k`, `-o`, `-O`).

use crate::premises::Refused;
use crate::program::Report;

/// A result with a name.
struct Selector {
    name: &'static str,
    /// Its description.
    text: &'static str,
    value: fn(&TestSummary<'_>) -> Option<String>,
}

/// What results are made of.
pub struct TestSummary<'r> {
    /// Readings and samples.
    pub report: &'r Report,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// `Send`, `Receive` or `Send|Recv`.
    pub direction: &'static str,
    /// Bytes of request and response.
    pub sizes: (u32, u32),
    /// Bytes per send and per receive.
    pub calls: (u32, u32),
    /// Segments sent again.
    pub again: u64,
    /// Whether data go in one direction.
    pub streams: bool,
}

impl TestSummary<'_> {
    fn reading(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.report.get(name))
    }

    /// A percentile of the latencies, in microseconds.
    fn latency(&self, share: f64) -> Option<String> {
        let mut all = self.report.samples.clone();
        all.sort_unstable_by(f64::total_cmp);
        let at = (all.len().checked_sub(1)? as f64 * share).round() as usize;
        all.get(at).map(|value| format!("{value:.2}"))
    }

    fn mean(&self) -> Option<f64> {
        let all = &self.report.samples;
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    fn deviation(&self) -> Option<f64> {
        let (mean, count) = (self.mean()?, self.report.samples.len() as f64);
        let squares: f64 = self.report.samples.iter().map(|value| (value - mean).powi(2)).sum();
        (count > 1.0).then(|| (squares / (count - 1.0)).sqrt())
    }
}

const fn selector(
    name: &'static str,
    text: &'static str,
    value: fn(&TestSummary<'_>) -> Option<String>,
) -> Selector {
    Selector { name, text, value }
}

fn two(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.2}"))
}

const ALL: &[Selector] = &[
    selector("PROTOCOL", "Protocol", |s| Some(s.protocol.to_owned())),
    selector("DIRECTION", "Direction", |s| Some(s.direction.to_owned())),
    selector("ELAPSED_TIME", "Elapsed Time (sec)", |s| {
        s.reading(&["time"]).map(|us| format!("{:.6}", us / 1e6))
    }),
    selector("THROUGHPUT", "Throughput", |s| two(s.reading(&["throughput", "rate"]))),
    selector("THROUGHPUT_UNITS", "Throughput Units", |s| {
        Some(if s.streams { "10^6bits/s" } else { "Trans/s" }.to_owned())
    }),
    selector("TRANSACTION_RATE", "Transaction Rate Tran/s", |s| two(s.reading(&["rate"]))),
    selector("RT_LATENCY", "Round Trip Latency usec/tran", |s| two(s.mean())),
    selector("MIN_LATENCY", "Minimum Latency Microseconds", |s| s.latency(0.0)),
    selector("MEAN_LATENCY", "Mean Latency Microseconds", |s| two(s.mean())),
    selector("MAX_LATENCY", "Maximum Latency Microseconds", |s| s.latency(1.0)),
    selector("P50_LATENCY", "50th Percentile Latency Microseconds", |s| s.latency(0.5)),
    selector("P90_LATENCY", "90th Percentile Latency Microseconds", |s| s.latency(0.9)),
    selector("P99_LATENCY", "99th Percentile Latency Microseconds", |s| s.latency(0.99)),
    selector("STDDEV_LATENCY", "Stddev Latency Microseconds", |s| two(s.deviation())),
    selector("REQUEST_SIZE", "Request Size Bytes", |s| Some(s.sizes.0.to_string())),
    selector("RESPONSE_SIZE", "Response Size Bytes", |s| Some(s.sizes.1.to_string())),
    selector("LOCAL_SEND_SIZE", "Local Send Size", |s| Some(s.calls.0.to_string())),
    selector("REMOTE_RECV_SIZE", "Remote Recv Size", |s| Some(s.calls.1.to_string())),
    selector("REMOTE_BYTES_RECVD", "Remote Bytes Received", |s| {
        s.reading(&["received"]).map(|bytes| format!("{bytes:.0}"))
    }),
    selector("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions", |s| {
        (s.protocol == "TCP").then(|| s.again.to_string())
    }),
    selector("LOCAL_CPU_UTIL", "Local CPU Util %", |s| two(s.reading(&["local cpu utilization"]))),
    selector("LOCAL_SD", "Local Service Demand", |s| {
        s.reading(&["local service demand"]).map(|value| format!("{value:.3}"))
    }),
    selector("REMOTE_CPU_UTIL", "Remote CPU Util %", |s| two(s.reading(&["remote cpu utilization"]))),
    selector("REMOTE_SD", "Remote Service Demand", |s| {
        s.reading(&["remote service demand"]).map(|value| format!("{value:.3}"))
    }),
    selector("SD_UNITS", "Service Demand Units", |s| {
        Some(if s.streams { "usec/KB" } else { "usec/Tran" }.to_owned())
    }),
    selector("CONFIDENCE_ITERATION", "Confidence Iterations TestRun", |s| {
        Some(format!("{:.0}", s.reading(&["tests"]).unwrap_or(1.0)))
    }),
    selector("THROUGHPUT_CONFID", "Throughput Confidence Width (%)", |s| {
        two(s.reading(&["confidence width"]))
    }),
];

/// What a test prints without a list of names.
const USUAL: [&str; 4] = ["LOCAL_SEND_SIZE", "ELAPSED_TIME", "THROUGHPUT", "THROUGHPUT_UNITS"];

/// How results are printed.
#[derive(Clone, Copy)]
enum OutputForm {
    /// `NAME=VALUE` (`-k`).
    Keys,
    /// Descriptions, then values, separated by commas (`-o`).
    Commas,
    /// A description and its value per line (`-O`).
    Lines,
}

/// Results to print.
pub struct NamedOutput {
    form: OutputForm,
    names: Vec<&'static Selector>,
}

impl NamedOutput {
    /// Reads the lists of `-k`, `-o` and `-O`, of which the first counts.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn read(
        keys: Option<&str>,
        commas: Option<&str>,
        lines: Option<&str>,
    ) -> Result<Option<Self>, Refused> {
        let forms = [(OutputForm::Keys, keys), (OutputForm::Commas, commas), (OutputForm::Lines, lines)];
        let Some((form, list)) = forms.into_iter().find_map(|(form, list)| Some((form, list?))) else {
            return Ok(None);
        };
        if list.eq_ignore_ascii_case("all") {
            return Ok(Some(Self { form, names: ALL.iter().collect() }));
        }
        let names: Vec<&str> = match list {
            "" => USUAL.to_vec(),
            list => list.split(',').map(str::trim).collect(),
        };
        let names = names.into_iter().map(|name| {
            let known = ALL.iter().find(|known| known.name.eq_ignore_ascii_case(name));
            known.ok_or_else(|| {
                let all: Vec<&str> = ALL.iter().map(|known| known.name).collect();
                let help = format!("results are {}", all.join(", "));
                Refused::new(format!("netperf: there is no result `{name}`"), help)
            })
        });
        Ok(Some(Self { form, names: names.collect::<Result<_, _>>()? }))
    }

    /// The text.
    pub fn print(&self, summary: &TestSummary<'_>) -> String {
        let value = |one: &Selector| (one.value)(summary).unwrap_or_else(|| "-1".to_owned());
        let lines = |separator: &str, text: fn(&Selector) -> &'static str| {
            let all = self.names.iter().map(|one| format!("{}{separator}{}", text(one), value(one)));
            all.collect::<Vec<_>>().join("\n")
        };
        match self.form {
            OutputForm::Keys => lines("=", |one| one.name),
            OutputForm::Lines => lines("  ", |one| one.text),
            OutputForm::Commas => {
                let texts: Vec<&str> = self.names.iter().map(|one| one.text).collect();
                let values: Vec<String> = self.names.iter().map(|one| value(one)).collect();
                format!("{}\n{}", texts.join(","), values.join(","))
            }
        }
    }
}
