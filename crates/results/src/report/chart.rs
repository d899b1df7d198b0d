//! Charts of simulated curves and measured points.

use super::DataTable;
use super::axis::{Scale, is_of_bytes, place, tick_label};
use super::panel::Panel;
use super::picture::picture;
use crate::claims::{Axis, ClaimFile, Evidence, Figure, Sample, short};

/// A curve and the measured points to compare with.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub label: String,
    /// Simulated points; a line joins them.
    pub simulated: Vec<Sample>,
    /// The measured or published samples.
    pub measured: Vec<Sample>,
}

/// A chart of a report: curves over one pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// An id for anchors and file names, unique on the page.
    pub id: String,
    /// Heading above the picture.
    pub title: String,
    /// Description in two sentences.
    pub text: String,
    /// The horizontal axis: heading and scale.
    pub x: (String, Scale),
    /// Labels of positions 0, 1, 2, … on a categorical horizontal axis; empty for a numeric one.
    pub names: Vec<String>,
    /// The vertical axis: heading and scale.
    pub y: (String, Scale),
    /// Whether the vertical axis starts at zero.
    pub from_zero: bool,
    /// Meaning of its rings, such as "measured".
    pub rings: String,
    /// Its curves; up to eight have distinguishable colours.
    pub curves: Vec<Curve>,
}

impl Chart {
    /// The chart of a paper's figure: published values as points, the evidence as curves.
    pub fn of_figure(file: &ClaimFile, figure: &Figure, evidence: &Evidence) -> Self {
        let curves = figure.line.iter().map(|line| Curve {
            label: line.label.clone(),
            simulated: figure.samples(line, evidence),
            measured: file.published(figure, &line.name),
        });
        let x = match figure.axis {
            Axis::Window => ("window (bytes)".into(), Scale::Log2),
            Axis::Transfer => ("transfer size (bytes)".into(), Scale::Log2),
            Axis::Percentile => ("share of reads that take at most".into(), Scale::Nines),
            Axis::Message => ("message (bytes)".into(), Scale::Log2),
            Axis::Buffers => ("write-combining buffers of the core".into(), Scale::Linear),
            Axis::Generation => ("generation of PCI Express".into(), Scale::Linear),
            Axis::Waiting => ("large messages that wait".into(), Scale::Linear),
            Axis::Buffer => ("buffer (bytes)".into(), Scale::Log2),
            Axis::Frame => ("frame (bytes)".into(), Scale::Log2),
            Axis::Beside => ("What runs beside it".into(), Scale::Linear),
            Axis::Run => ("run".into(), Scale::Linear),
            Axis::SetRatio => ("SET requests (%)".into(), Scale::Linear),
            Axis::Streams => ("instances of STREAM".into(), Scale::Linear),
            Axis::Year => ("year".into(), Scale::Linear),
            Axis::Microseconds => ("time (µs)".into(), Scale::Linear),
        };
        let is_change = figure.line.iter().any(|line| line.relative_to.is_some());
        // "latency over transfer size": the other axis says over what.
        let quantity = figure.quantity.split(" over ").next().unwrap_or(&figure.quantity);
        let unit = match &*figure.unit {
            "%" if is_change => "change (%)".into(),
            unit => format!("{quantity} ({unit})"),
        };
        let is_log = figure.log || figure.axis == Axis::Percentile;
        let y_scale = if is_log { Scale::Log10 } else { Scale::Linear };
        Self {
            id: figure.id.clone(),
            title: figure.title.clone(),
            text: match &figure.assumes {
                Some(assumes) => format!("{} Assumed: {assumes}", figure.text),
                None => figure.text.clone(),
            },
            x,
            names: match figure.axis {
                Axis::Beside => ["nothing", "netperf", "memcached"].map(str::to_owned).into(),
                Axis::Run => ["TX", "RX, all", "TSO, all", "TX, all", "sendfile", "RX, x8", "RX, x16"]
                    .map(str::to_owned)
                    .into(),
                _ => Vec::new(),
            },
            y: (unit, y_scale),
            from_zero: figure.unit == "Gbit/s",
            rings: "measured".into(),
            curves: curves.collect(),
        }
    }

    /// The data as CSV: curve, kind, x, y, low, high.
    pub fn to_csv(&self) -> String {
        let mut text = String::from("curve,kind,x,y,low,high\r\n");
        for curve in &self.curves {
            let label = match curve.label.contains([',', '"', '\n']) {
                true => format!("\"{}\"", curve.label.replace('"', "\"\"")),
                false => curve.label.clone(),
            };
            for (kind, samples) in [("simulated", &curve.simulated), ("measured", &curve.measured)] {
                for s in samples {
                    let [y, low, high] = [Some(s.y), s.low, s.high].map(written);
                    text.push_str(&format!("{label},{kind},{},{y},{low},{high}\r\n", s.x));
                }
            }
        }
        text
    }

    /// Whether a curve has bars from minimum to 95th percentile.
    pub(super) fn has_bars(&self) -> bool {
        self.samples().any(|s| s.low.is_some())
    }

    /// Whether its title already names its only curve.
    pub(super) fn needs_no_legend(&self) -> bool {
        matches!(&self.curves[..], [curve] if self.title.starts_with(&curve.label))
    }

    /// Its drawings, from top to bottom; empty without samples.
    pub(super) fn panels(&self) -> Vec<Panel<'_>> {
        Panel::all(self)
    }

    /// The drawing as a stand-alone file that supports light and dark themes.
    pub fn to_picture(&self) -> Option<String> {
        picture(std::slice::from_ref(self))
    }

    /// Heading of the horizontal axis; labels of bytes have their own unit.
    pub(super) fn x_heading(&self) -> &str {
        match self.x.1 == Scale::Log2 && is_of_bytes(&self.x.0) {
            true => self.x.0.rsplit_once(" (").map_or(&*self.x.0, |(quantity, _)| quantity),
            false => &self.x.0,
        }
    }

    /// Label at a position of the horizontal axis.
    pub(super) fn x_label(&self, at: f64) -> String {
        let name = self.names.get(at.round() as usize);
        name.cloned().unwrap_or_else(|| tick_label(at, self.x.1, is_of_bytes(&self.x.0)))
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.curves.iter().flat_map(|c| c.simulated.iter().chain(&c.measured))
    }

    /// Its values as a table with a row per position, for accessibility.
    pub(super) fn values(&self) -> DataTable {
        let mut places: Vec<f64> = self.samples().map(|sample| sample.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let mut header = vec![self.x.0.clone()];
        let mut columns: Vec<&[Sample]> = Vec::new();
        for curve in &self.curves {
            for (samples, what) in [(&curve.simulated, "simulated"), (&curve.measured, &*self.rings)] {
                if !samples.is_empty() {
                    header.push(format!("{}, {what}", curve.label));
                    columns.push(samples);
                }
            }
        }
        let cell = |samples: &[Sample], x: f64| {
            let ys: Vec<f64> = samples.iter().filter(|sample| sample.x == x).map(|sample| sample.y).collect();
            match &ys[..] {
                [] => "–".to_owned(),
                [y] => short(*y),
                ys => {
                    let (low, high) =
                        ys.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &y| {
                            (low.min(y), high.max(y))
                        });
                    format!("{} of {} to {}", ys.len(), short(low), short(high))
                }
            }
        };
        let row = |&x: &f64| {
            let cells = columns.iter().map(|samples| cell(samples, x));
            std::iter::once(self.x_label(place(x, self.x.1))).chain(cells).collect()
        };
        DataTable {
            title: format!("Values, {}", self.y.0),
            rows: places.iter().map(row).collect(),
            header,
            numbers_from: 1,
        }
    }
}

/// A value with seven digits, more than any measured value has.
fn written(value: Option<f64>) -> String {
    let rounded = value.and_then(|value| format!("{value:.6e}").parse::<f64>().ok());
    rounded.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(x: f64, y: f64) -> Sample {
        Sample { x, y, low: Some(y - 5.0), high: Some(y + 9.0) }
    }

    fn chart() -> Chart {
        let curve = Curve {
            label: "read \"cold\"".into(),
            simulated: vec![sample(4096.0, 480.0), sample(65536.0, 482.0)],
            measured: vec![sample(4096.0, 480.0)],
        };
        Chart {
            id: "c".into(),
            title: "A < B".into(),
            text: String::new(),
            x: ("window (bytes)".into(), Scale::Log2),
            names: Vec::new(),
            y: ("ns".into(), Scale::Linear),
            from_zero: false,
            rings: "measured".into(),
            curves: vec![curve],
        }
    }

    /// At 0.7 em a letter, which the widest bold fonts have on average.
    #[test]
    fn a_long_title_fits_the_picture() {
        let title = "goodput of BW_DMA_RD Rand HWarm, 64 B in 1 MiB and the like over dma engine tags";
        let picture = Chart { title: title.into(), ..chart() }.to_picture().unwrap();
        let width: f64 = picture.split('"').nth(1).unwrap().parse().unwrap();
        let lines: Vec<&str> = picture.split("font-weight=\"600\"").skip(1).collect();
        assert!(lines.len() > 1, "{picture}");
        for line in lines {
            let text = line.split(['>', '<']).nth(1).unwrap();
            assert!(14.0 + 17.0 * 0.7 * (text.len() as f64) < width, "{text}");
        }
    }

    #[test]
    fn a_drawing_has_no_colour_of_its_own() {
        let chart = chart();
        let svg = chart.panels()[0].to_svg(true).unwrap();
        assert!(!svg.contains("\"#"), "{svg}");
        assert!(svg.contains("var(--curve-0)") && svg.contains("aria-label=\"A &lt; B\""));
        assert!(svg.contains("64 KiB"));
    }

    #[test]
    fn words_stand_on_an_axis_without_numbers() {
        let mut words = chart();
        words.x = ("iommu".into(), Scale::Linear);
        words.names = ["off", "strict"].map(str::to_owned).to_vec();
        for (x, sample) in words.curves[0].simulated.iter_mut().enumerate() {
            sample.x = x as f64;
        }
        words.curves[0].measured.clear();
        let svg = words.panels()[0].to_svg(true).unwrap();
        for part in ["\noff\n", "\nstrict\n", "strict, simulated"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn no_samples_no_drawing() {
        let mut empty = chart();
        empty.curves.clear();
        assert!(empty.panels().is_empty() && empty.to_picture().is_none());
    }

    #[test]
    fn values_stand_in_a_table() {
        let table = chart().values();
        assert_eq!(table.header, ["window (bytes)", "read \"cold\", simulated", "read \"cold\", measured"]);
        assert_eq!(table.rows, [["4 KiB", "480", "480"], ["64 KiB", "482", "–"]]);
    }

    #[test]
    fn data_are_quoted() {
        let csv = chart().to_csv();
        assert!(csv.contains("\"read \"\"cold\"\"\",simulated,4096,480,475,489\r\n"), "{csv}");
        assert_eq!(csv.lines().count(), 4);
    }
}
