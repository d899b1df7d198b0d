//! Charts: simulated curves with measured points, as SVG that follows the
//! page's theme.

use super::overlap::breaks;
use crate::claims::{Axis, ClaimFile, Evidence, Figure, Sample};
use core::ops::Range;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

/// How a coordinate is spread over its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Powers of two evenly; labelled in bytes on the horizontal axis.
    Log2,
    /// Powers of ten evenly.
    Log10,
    /// Percentiles, the tail drawn out: 90, 99 and 99.9 % evenly.
    Nines,
}

/// A curve and the measured points that it should meet.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its label.
    pub label: String,
    /// The simulated samples.
    pub simulated: Vec<Sample>,
    /// The measured or published samples.
    pub measured: Vec<Sample>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// A name for anchors and file names, unique on the page.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What it shows, in two sentences.
    pub text: String,
    /// The horizontal axis: heading and scale.
    pub x: (String, Scale),
    /// What stands at 0, 1, 2 and so on of a horizontal axis that has no numbers; empty of one that has.
    pub names: Vec<String>,
    /// The vertical axis: heading and scale.
    pub y: (String, Scale),
    /// Whether the vertical axis begins at zero.
    pub from_zero: bool,
    /// What its rings are: "measured", say.
    pub rings: String,
    /// Its curves, eight at most in distinguishable colours.
    pub curves: Vec<Curve>,
}

/// An axis with chosen places for its labels.
struct Ticked {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The drawing's size; its text is readable down to a phone's width.
const SIZE: (u32, u32) = (560, 360);
/// Colours that the page replaces by its theme's.
const TEXT: RGBColor = RGBColor(2, 0, 0);
const GRID: RGBColor = RGBColor(2, 0, 1);
const GROUND: RGBColor = RGBColor(2, 0, 2);
/// How many colours the theme has for curves.
const COLOURS: usize = 8;

impl Chart {
    /// The chart of a paper's figure: published values as points, what the
    /// evidence has as curves.
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
            Axis::SetRatio => ("SET requests (%)".into(), Scale::Linear),
            Axis::Streams => ("instances of STREAM".into(), Scale::Linear),
            Axis::Year => ("year".into(), Scale::Linear),
            Axis::Microseconds => ("time (µs)".into(), Scale::Linear),
        };
        let unit = if figure.unit == "%" { "change (%)" } else { &figure.unit };
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
            names: Vec::new(),
            y: (unit.into(), y_scale),
            from_zero: figure.unit == "Gbit/s",
            rings: "measured".into(),
            curves: curves.collect(),
        }
    }

    /// Its data as CSV: curve, kind, x, y, low, high.
    pub fn to_csv(&self) -> String {
        let mut text = String::from("curve,kind,x,y,low,high\r\n");
        for curve in &self.curves {
            for (kind, samples) in [("simulated", &curve.simulated), ("measured", &curve.measured)] {
                for s in samples {
                    let optional = |v: Option<f64>| v.map_or_else(String::new, |v| v.to_string());
                    let label = curve.label.replace('"', "\"\"");
                    let row = format!(
                        "\"{label}\",{kind},{},{},{},{}\r\n",
                        s.x,
                        s.y,
                        optional(s.low),
                        optional(s.high)
                    );
                    text.push_str(&row);
                }
            }
        }
        text
    }

    /// Whether a curve has bars from minimum to 95th percentile.
    pub(super) fn has_bars(&self) -> bool {
        self.samples().any(|s| s.low.is_some())
    }

    /// What stands at a place of the horizontal axis.
    fn x_label(&self, at: f64) -> String {
        let name = self.names.get(at.round() as usize);
        name.cloned().unwrap_or_else(|| tick_label(at, self.x.1, true))
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.curves.iter().flat_map(|c| c.simulated.iter().chain(&c.measured))
    }

    /// How each curve is broken so that those that it lies on show: 0 is not at all.
    pub(super) fn breaks(&self) -> Vec<usize> {
        let at = |s: &Sample| (place(s.x, self.x.1), place(s.y, self.y.1));
        let curves: Vec<Vec<_>> =
            self.curves.iter().map(|curve| curve.simulated.iter().map(at).collect()).collect();
        let ys: Vec<f64> = self.samples().map(|s| place(s.y, self.y.1)).collect();
        let (low, high) = range(&ys).unwrap_or_default();
        breaks(&curves, high - if self.from_zero { low.min(0.0) } else { low })
    }

    /// The drawing; `None` without a single sample.
    pub fn to_svg(&self) -> Option<String> {
        let xs: Vec<f64> = self.samples().map(|s| place(s.x, self.x.1)).collect();
        let bounds = |s: &Sample| [Some(s.y), s.low, s.high].into_iter().flatten().collect::<Vec<_>>();
        let ys: Vec<f64> = self.samples().flat_map(bounds).map(|v| place(v, self.y.1)).collect();
        let (x_low, x_high) = range(&xs)?;
        let (y_low, y_high) = range(&ys)?;
        let x_ticks = match self.names.len() {
            0 => ticks(x_low, x_high, self.x.1),
            names => (0..names).map(|name| name as f64).collect(),
        };
        let (y_low, y_high, y_ticks) = match self.y.1 {
            Scale::Linear => even_ticks(if self.from_zero { y_low.min(0.0) } else { y_low }, y_high),
            scale => (y_low.floor(), y_high.ceil(), ticks(y_low.floor(), y_high.ceil(), scale)),
        };
        // Words need room at both ends.
        let margin = (x_high - x_low).max(1e-9) * if self.names.is_empty() { 0.03 } else { 0.25 };
        let (mut svg, mut told) = (String::new(), Vec::new());
        let x = Ticked { range: x_low - margin..x_high + margin, ticks: x_ticks };
        let y = Ticked { range: y_low..y_high, ticks: y_ticks };
        let drawn = self.draw(&mut svg, &mut told, x, y);
        // A string takes everything: drawing into one cannot fail.
        drawn.ok()?;
        let values: String = told.iter().map(Told::to_svg).collect();
        let svg = svg.replacen("</svg>", &format!("{values}</svg>"), 1);
        Some(themed(&svg, &self.title))
    }

    /// The drawing as a file of its own, in the colours of the light theme and of the dark one where that is wanted.
    pub fn to_picture(&self) -> Option<String> {
        let svg = self.to_svg()?;
        let theme = include_str!("style.css");
        // The theme's variables are the beginning of the page's style.
        let theme = &theme[..theme.find("* {").unwrap_or(0)];
        let (width, height) = SIZE;
        let size = format!("<svg width=\"{width}\" height=\"{height}\"");
        let style = "svg { background: var(--card) } text { font-family: sans-serif }";
        let legend = self.curves.iter().enumerate().filter(|_| self.curves.len() > 1).map(|(n, curve)| {
            let label = curve.label.replace('&', "&amp;").replace('<', "&lt;");
            let colour = n % COLOURS;
            let y = 24 + 18 * n;
            format!(
                "<text x=\"84\" y=\"{y}\" font-size=\"14\" fill=\"var(--curve-{colour})\">{label}</text>\n"
            )
        });
        let legend: String = legend.collect();
        let svg = svg.replacen("<svg", &size, 1);
        let head = svg.find('>')? + 1;
        let end = svg.rfind("</svg>")?;
        let (opening, drawing) = (&svg[..head], &svg[head..end]);
        Some(format!("{opening}\n<style>{theme}{style}</style>\n{drawing}{legend}</svg>\n"))
    }

    /// Draws, and adds to `told` what each point is.
    fn draw(
        &self,
        svg: &mut String,
        told: &mut Vec<Told>,
        x: Ticked,
        y: Ticked,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let bar_shift = (x.range.end - x.range.start) * 0.006;
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(14)
            .x_label_area_size(52)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)?;
        let font = ("sans-serif", 17).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(font.clone())
            .axis_desc_style(font)
            .x_desc(self.x.0.as_str())
            .y_desc(self.y.0.as_str())
            .x_label_formatter(&|v| self.x_label(*v))
            .y_label_formatter(&|v| tick_label(*v, self.y.1, false))
            .draw()?;
        for ((i, curve), breaks) in self.curves.iter().enumerate().zip(self.breaks()) {
            let colour = RGBColor(1, 0, (i % COLOURS) as u8);
            let at = |s: &Sample| (place(s.x, self.x.1), place(s.y, self.y.1));
            for (samples, shift) in [(&curve.simulated, 0.0), (&curve.measured, bar_shift)] {
                for s in samples {
                    if let (Some(low), Some(high)) = (s.low, s.high) {
                        let x = at(s).0 + shift;
                        let bar = [(x, place(low, self.y.1)), (x, place(high, self.y.1))];
                        chart.draw_series(std::iter::once(PathElement::new(bar, colour.mix(0.55))))?;
                    }
                }
            }
            for (kind, samples) in [("simulated", &curve.simulated), (&self.rings, &curve.measured)] {
                for s in samples.iter().take(MOST_TOLD) {
                    let x = self.x_label(place(s.x, self.x.1));
                    let text =
                        format!("{}: {x}, {kind} {} {}", curve.label, crate::claims::short(s.y), self.y.0);
                    told.push(Told { at: chart.backend_coord(&at(s)), text });
                }
            }
            let line = curve.simulated.iter().map(at);
            match breaks {
                // What has no order has nothing in between.
                _ if !self.names.is_empty() => {}
                0 => drop(chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?),
                // The higher it lies, the less it covers.
                n => {
                    let (dash, gap) = (10 / n as u32, 4 + 6 * n as u32);
                    let style = colour.stroke_width(2);
                    chart.draw_series(DashedLineSeries::new(line, dash, gap, style))?;
                }
            }
            let ring = |s: &Sample| {
                EmptyElement::at(at(s))
                    + Circle::new((0, 0), 4, GROUND.filled())
                    + Circle::new((0, 0), 4, colour.stroke_width(2))
            };
            chart.draw_series(curve.measured.iter().map(ring))?;
            if curve.measured.is_empty() {
                let size = if self.names.is_empty() { 2 } else { 6 };
                let dot = |s: &Sample| Circle::new(at(s), size, colour.filled());
                chart.draw_series(curve.simulated.iter().map(dot))?;
            }
        }
        root.present()?;
        Ok(())
    }
}

/// Points of a curve that say their values; more lie too close to be pointed at.
const MOST_TOLD: usize = 200;

/// A point that says what it is to whoever points at it.
struct Told {
    at: (i32, i32),
    text: String,
}

impl Told {
    fn to_svg(&self) -> String {
        let text = self.text.replace('&', "&amp;").replace('<', "&lt;");
        let (x, y) = self.at;
        format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"9\" fill=\"none\" pointer-events=\"all\"><title>{text}</title></circle>\n"
        )
    }
}

/// Where a value is on a scale.
fn place(v: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => v,
        Scale::Log2 => v.max(f64::MIN_POSITIVE).log2(),
        Scale::Log10 => v.max(f64::MIN_POSITIVE).log10(),
        Scale::Nines => -(1.0 - v.min(99.995) / 100.0).log10(),
    }
}

/// Puts the theme's variables in place of the marker colours, and a title and
/// a flexible size on the drawing.
fn themed(svg: &str, title: &str) -> String {
    let mut themed = svg.to_owned();
    for i in 0..COLOURS {
        themed = themed.replace(&format!("#0100{i:02X}"), &format!("var(--curve-{i})"));
    }
    for (marker, variable) in [("#020000", "--muted"), ("#020001", "--grid"), ("#020002", "--card")] {
        themed = themed.replace(marker, &format!("var({variable})"));
    }
    let (width, height) = SIZE;
    let fixed = format!("<svg width=\"{width}\" height=\"{height}\"");
    let title = title.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    themed.replacen(&fixed, &format!("<svg role=\"img\" aria-label=\"{title}\""), 1)
}

/// The least and greatest of the values.
fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// Places of labels on a scale that is not linear.
fn ticks(low: f64, high: f64, scale: Scale) -> Vec<f64> {
    match scale {
        Scale::Log2 => {
            let step = if high - low > 10.0 { 2 } else { 1 };
            let first = low.ceil() as i64;
            (first..=high.floor() as i64).step_by(step).map(|v| v as f64).collect()
        }
        Scale::Log10 => (low.ceil() as i64..=high.floor() as i64).map(|v| v as f64).collect(),
        Scale::Nines => [0.0, 50.0, 90.0, 95.0, 99.0, 99.9]
            .into_iter()
            .map(|p: f64| -(1.0 - p / 100.0).log10())
            .filter(|v| (low - 1e-9..=high + 1e-9).contains(v))
            .collect(),
        Scale::Linear => even_ticks(low, high).2,
    }
}

/// A range that begins and ends at round numbers, and these.
fn even_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    // Values of one sign begin at zero unless they all lie far from it.
    let span = (high - low).max(high.abs() * 0.02).max(1e-9);
    let (mut low, mut high) = (low, high);
    // What hardly changes looks so.
    if high - low < span {
        let middle = (low + high) / 2.0;
        (low, high) = (middle - span / 2.0, middle + span / 2.0);
    }
    if low >= 0.0 && low < span * 1.5 {
        low = 0.0;
    }
    if high <= 0.0 && -high < span * 1.5 {
        high = 0.0;
    }
    if high - low < 1e-9 {
        (low, high) = (low - span / 2.0, high + span / 2.0);
    }
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    // What sticks out by less than a twentieth of a step needs no tick beyond it.
    let (first, last) = ((low / step + 0.05).floor() as i64, (high / step - 0.05).ceil() as i64);
    let ticks: Vec<f64> = (first..=last).map(|i| i as f64 * step).collect();
    (low.min(first as f64 * step), high.max(last as f64 * step), ticks)
}

fn tick_label(v: f64, scale: Scale, bytes: bool) -> String {
    match scale {
        Scale::Linear => {
            // Seven digits tell nobody anything, and reach into the axis' title.
            let (v, times) = match v.abs() {
                size if size >= 1e8 => (v / 1e9, "G"),
                size if size >= 1e5 => (v / 1e6, "M"),
                _ => (v, ""),
            };
            let text = format!("{v:.2}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            (if text == "-0" { "0" } else { text }).replace('-', "−") + times
        }
        Scale::Log2 => {
            let value = v.exp2().round() as u64;
            match value {
                _ if !bytes => value.to_string(),
                _ if value >= 1 << 20 => format!("{}M", value >> 20),
                _ if value >= 1 << 10 => format!("{}K", value >> 10),
                _ => value.to_string(),
            }
        }
        Scale::Log10 => {
            let value = 10f64.powf(v).round();
            match value {
                _ if value >= 1e6 => format!("{}M", value / 1e6),
                _ if value >= 1e3 => format!("{}k", value / 1e3),
                _ => format!("{value}"),
            }
        }
        Scale::Nines => {
            let percent = 100.0 * (1.0 - 10f64.powf(-v));
            if percent < 1e-6 { "min".into() } else { format!("{}%", (percent * 10.0).round() / 10.0) }
        }
    }
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
            x: ("window".into(), Scale::Log2),
            names: Vec::new(),
            y: ("ns".into(), Scale::Linear),
            from_zero: false,
            rings: "measured".into(),
            curves: vec![curve],
        }
    }

    #[test]
    fn a_drawing_has_no_colour_of_its_own() {
        let svg = chart().to_svg().unwrap();
        assert!(!svg.contains("\"#"), "{svg}");
        assert!(svg.contains("var(--curve-0)") && svg.contains("aria-label=\"A &lt; B\""));
        assert!(svg.contains("64K"));
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
        let svg = words.to_svg().unwrap();
        for part in ["\noff\n", "\nstrict\n", "strict, simulated"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn no_samples_no_drawing() {
        let mut empty = chart();
        empty.curves.clear();
        assert_eq!(empty.to_svg(), None);
    }

    #[test]
    fn data_are_quoted() {
        let csv = chart().to_csv();
        assert!(csv.contains("\"read \"\"cold\"\"\",simulated,4096,480,475,489\r\n"), "{csv}");
        assert_eq!(csv.lines().count(), 4);
    }

    #[test]
    fn ticks_are_round_and_enclose() {
        let (low, high, ticks) = even_ticks(386.0, 1013.0);
        assert!(low <= 386.0 && high >= 1013.0 && ticks.len() < 9, "{ticks:?}");
        let (low, high, _) = even_ticks(-77.0, 0.3);
        assert!(low <= -77.0 && high >= 0.3);
        let (low, high, _) = even_ticks(5.0, 5.0);
        assert!(low < high);
        assert_eq!(tick_label(-20.0, Scale::Linear, false), "−20");
        assert_eq!(tick_label(0.5, Scale::Linear, false), "0.5");
        assert_eq!(tick_label(18_100_000.0, Scale::Linear, false), "18.1M");
        assert_eq!(tick_label(-0.001, Scale::Linear, false), "0");
        assert_eq!(tick_label(20.0, Scale::Log2, true), "1M");
    }
}
