//! Draws a chart as SVG that follows the page's theme: coinciding curves become one line, and a long axis is split
//! into several panels.

use core::ops::Range;
use std::collections::BTreeSet;

use plotters::prelude::*;

use super::axis::{Scale, Ticked, even_ticks, heading, place, range, tick_label, ticks};
use super::chart::{Chart, Curve};
use super::overlap::{breaks, coinciding};
use crate::claims::{Sample, short};

/// Width of a drawing; its text is readable on a phone.
pub(super) const WIDTH: u32 = 560;
/// Width of a letter of the axes' text, in pixels.
const LETTER: u32 = 9;
/// Height of a single panel, and of one of several.
const HEIGHT: (u32, u32) = (360, 270);
/// Space for the vertical axis and its labels.
const AXIS: u32 = 84;
const RIGHT: u32 = 14;
/// Marker colours, replaced by the theme's.
const TEXT: RGBColor = RGBColor(2, 0, 0);
const GRID: RGBColor = RGBColor(2, 0, 1);
/// Number of the theme's line colours.
const COLOURS: usize = 8;
/// Curves that differ by more than this factor do not share a linear axis.
const APART: f64 = 20.0;
/// Maximum number of points of a curve with tooltips; more would be too close together.
const MOST_TOLD: usize = 200;
/// Maximum number of lines in a tooltip.
const MOST_LINES: usize = 8;
/// Maximum length of a label below the axis; the table of values has the full text.
const LONGEST_NAME: usize = 24;

/// A panel: lines that share a vertical axis, over a section of the horizontal axis.
pub(super) struct Panel<'a> {
    chart: &'a Chart,
    lines: Vec<Line<'a>>,
    /// Section of the axis, in positions.
    x: Range<f64>,
    /// Whether this is the first section; only this one has a legend.
    is_first: bool,
    /// Height in pixels.
    pub height: u32,
}

/// Curves that look like one line.
struct Line<'a> {
    curves: Vec<&'a Curve>,
    /// Dash level, so that lines below remain visible; 0 is solid.
    breaks: usize,
}

/// What a curve is called, and how it is drawn.
pub(super) struct LegendEntry {
    pub label: String,
    /// Index of its colour.
    pub colour: usize,
    pub breaks: usize,
}

impl Line<'_> {
    /// Minimum and maximum of its curves at each position.
    fn band(&self) -> Vec<(f64, f64, f64)> {
        let of = |n: usize| self.curves.iter().map(move |curve| curve.simulated[n].y);
        let first = self.curves[0].simulated.iter().enumerate();
        first.map(|(n, at)| (at.x, of(n).fold(at.y, f64::min), of(n).fold(at.y, f64::max))).collect()
    }

    fn spread(&self) -> f64 {
        self.band().iter().map(|(_, low, high)| high - low).fold(0.0, f64::max)
    }

    /// Names of its curves.
    fn names(&self) -> String {
        let labels: Vec<&str> = self.curves.iter().map(|curve| &*curve.label).collect();
        match &labels[..] {
            [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
            _ => labels.concat(),
        }
    }
}

impl<'a> Panel<'a> {
    /// Panels of a chart; empty without samples.
    pub fn all(chart: &'a Chart) -> Vec<Self> {
        let curves: Vec<&Curve> = chart
            .curves
            .iter()
            .filter(|curve| !(curve.simulated.is_empty() && curve.measured.is_empty()))
            .collect();
        let xs: Vec<f64> = chart.samples().map(|s| place(s.x, chart.x.1)).collect();
        let Some(xs) = range(&xs) else { return Vec::new() };
        let (pieces, mut panels) = (pieces(chart, xs), Vec::new());
        for level in levels(chart, &curves) {
            let lines = lines(chart, &level);
            let mut lines = lines.into_iter().peekable();
            while lines.peek().is_some() {
                let some: Vec<Vec<&Curve>> = lines.by_ref().take(COLOURS).collect();
                for (n, x) in pieces.iter().enumerate() {
                    let lines = broken(chart, some.clone());
                    panels.push(Self { chart, lines, x: x.clone(), is_first: n == 0, height: HEIGHT.0 });
                }
            }
        }
        if panels.len() > 1 {
            panels.iter_mut().for_each(|panel| panel.height = HEIGHT.1);
        }
        panels
    }

    /// Unit of the vertical axis: the text in parentheses, or the whole heading.
    fn unit(&self) -> &str {
        let heading = &*self.chart.y.0;
        heading.rsplit_once('(').map_or(heading, |(_, unit)| unit.trim_end_matches(')'))
    }

    /// What stands below the panel: a label per line, with how far its curves are apart; empty but in the first panel.
    pub fn legend(&self) -> Vec<LegendEntry> {
        let unit = self.unit();
        let entry = |(n, line): (usize, &Line<'_>)| {
            let label = match (line.curves.len(), line.spread()) {
                (1, _) => line.names(),
                (_, spread) if short(spread) == short(0.0) => format!("{}: the same", line.names()),
                (_, spread) => format!("{}: {} {unit} apart at most", line.names(), short(spread)),
            };
            LegendEntry { label, colour: n % COLOURS, breaks: line.breaks }
        };
        self.lines.iter().enumerate().filter(|_| self.is_first).map(entry).collect()
    }

    /// The samples within its section of the axis.
    fn within<'s>(&'s self, samples: &'s [Sample]) -> impl Iterator<Item = &'s Sample> + Clone {
        samples.iter().filter(|s| self.x.contains(&place(s.x, self.chart.x.1)))
    }

    /// Draws the panel, with tooltips if `points_tell`; `None` if there is nothing to draw.
    pub fn to_svg(&self, points_tell: bool) -> Option<String> {
        let chart = self.chart;
        let curves = || self.lines.iter().flat_map(|line| &line.curves);
        // All sections of an axis have the same vertical range.
        let samples = curves().flat_map(|curve| curve.simulated.iter().chain(&curve.measured));
        let bounds = |s: &Sample| [Some(s.y), s.low, s.high].into_iter().flatten().collect::<Vec<_>>();
        let ys: Vec<f64> = samples.flat_map(bounds).map(|v| place(v, chart.y.1)).collect();
        let (y_low, y_high) = range(&ys)?;
        let x_ticks = match chart.names.len() {
            0 => ticks(self.x.start, self.x.end, chart.x.1),
            names => (0..names).map(|name| name as f64).filter(|at| self.x.contains(at)).collect(),
        };
        let (y_low, y_high, y_ticks) = match chart.y.1 {
            Scale::Linear => even_ticks(if chart.from_zero { y_low.min(0.0) } else { y_low }, y_high),
            scale => (y_low.floor(), y_high.ceil(), ticks(y_low.floor(), y_high.ceil(), scale)),
        };
        let (mut svg, mut told, mut rings) = (String::new(), Vec::new(), String::new());
        let x = Ticked { range: self.x.clone(), ticks: x_ticks };
        let y = Ticked { range: y_low..y_high, ticks: y_ticks };
        let drawn = self.draw(&mut svg, &mut told, &mut rings, x, y);
        // Drawing into a string cannot fail.
        drawn.ok()?;
        let mut more = rings;
        if points_tell && !told.is_empty() {
            let values: String = told.iter().map(Told::to_svg).collect();
            more += &format!("<g fill=\"none\" pointer-events=\"all\">\n{values}</g>\n");
        }
        let svg = svg.replacen("</svg>", &format!("{more}</svg>"), 1);
        Some(themed(&svg, &chart.title, self.height))
    }

    /// Draws the lines; collects tooltips in `told` and measured points in `rings`. These are written separately,
    /// since individual elements would be several times as long.
    fn draw(
        &self,
        svg: &mut String,
        told: &mut Vec<Told>,
        rings: &mut String,
        x: Ticked,
        y: Ticked,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let of = self.chart;
        let root = SVGBackend::with_string(svg, (WIDTH, self.height)).into_drawing_area();
        // Numbers of a linear axis stay short; in a small panel, a long heading is its unit alone.
        let most = y.range.start.abs().max(y.range.end.abs());
        let (name, factor) = match of.y.1 {
            Scale::Linear => heading(&of.y.0, most),
            _ => (of.y.0.clone(), 1.0),
        };
        let name = match name.rsplit_once(" (") {
            Some((_, unit)) if name.chars().count() as u32 * LETTER > self.height => {
                unit.trim_end_matches(')')
            }
            _ => &name,
        };
        let bar_shift = (x.range.end - x.range.start) * 0.006;
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(RIGHT)
            .x_label_area_size(52)
            .y_label_area_size(AXIS)
            .build_cartesian_2d(x, y)?;
        let font = ("sans-serif", 17).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(font.clone())
            .axis_desc_style(font)
            .x_desc(of.x_heading())
            .y_desc(name)
            .x_label_formatter(&|v| shortened(&of.x_label(*v)))
            .y_label_formatter(&|v| tick_label(*v / factor, of.y.1, false))
            .draw()?;
        let at = |s: &Sample| (place(s.x, of.x.1), place(s.y, of.y.1));
        for (n, line) in self.lines.iter().enumerate() {
            let colour = RGBColor(1, 0, (n % COLOURS) as u8);
            for curve in &line.curves {
                for (samples, shift) in [(&curve.simulated, 0.0), (&curve.measured, bar_shift)] {
                    for s in self.within(samples) {
                        if let (Some(low), Some(high)) = (s.low, s.high) {
                            let x = at(s).0 + shift;
                            let bar = [(x, place(low, of.y.1)), (x, place(high, of.y.1))];
                            chart.draw_series(std::iter::once(PathElement::new(bar, colour.mix(0.55))))?;
                        }
                    }
                }
                for s in self.within(&curve.measured).take(MOST_TOLD) {
                    let (x, y) = (of.x_label(at(s).0), short(s.y));
                    let text = format!("{}: {x}, {} {y} {}", curve.label, of.rings, self.unit());
                    tell(told, chart.backend_coord(&at(s)), text);
                }
            }
            let (band, names) = (self.band(line), line.names());
            for (x, low, high) in band.iter().take(MOST_TOLD) {
                let value = match (short(*low), short(*high)) {
                    (low, high) if low == high => low,
                    (low, high) => format!("{low} to {high}"),
                };
                let middle = (place(*x, of.x.1), place(f64::midpoint(*low, *high), of.y.1));
                let text = format!("{names}: {}, simulated {value} {}", of.x_label(middle.0), self.unit());
                tell(told, chart.backend_coord(&middle), text);
            }
            let edge = |(x, y): (f64, f64)| (place(x, of.x.1), place(y, of.y.1));
            if band.iter().any(|(_, low, high)| low < high) {
                let lower = band.iter().map(|&(x, low, _)| edge((x, low)));
                let upper = band.iter().rev().map(|&(x, _, high)| edge((x, high)));
                let area: Vec<_> = lower.chain(upper).collect();
                chart.draw_series(std::iter::once(Polygon::new(area, colour.mix(0.3))))?;
            }
            let middle = || band.iter().map(|&(x, low, high)| edge((x, f64::midpoint(low, high))));
            match line.breaks {
                // Categories have no order, so no line connects them.
                _ if !of.names.is_empty() => {}
                0 => drop(chart.draw_series(LineSeries::new(middle(), colour.stroke_width(2)))?),
                // Higher lines get longer gaps, to cover less.
                n => {
                    let (dash, gap) = (10 / n as u32, 4 + 6 * n as u32);
                    let style = colour.stroke_width(2);
                    chart.draw_series(DashedLineSeries::new(middle(), dash, gap, style))?;
                }
            }
            let measured = line.curves.iter().flat_map(|curve| self.within(&curve.measured));
            // Coinciding points are drawn once.
            let places: BTreeSet<_> = measured.map(|s| chart.backend_coord(&at(s))).collect();
            let ring = |(x, y)| format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"4\"/>\n");
            let drawn: String = places.into_iter().map(ring).collect();
            if !drawn.is_empty() {
                let colour = n % COLOURS;
                *rings += &format!(
                    "<g fill=\"var(--card)\" stroke=\"var(--curve-{colour})\" stroke-width=\"2\">\n{drawn}</g>\n"
                );
            }
            if !of.names.is_empty() && of.from_zero && self.lines.len() == 1 {
                let bar = |(x, y)| Rectangle::new([(x - 0.25, 0.0), (x + 0.25, y)], colour.mix(0.3).filled());
                chart.draw_series(middle().map(bar))?;
            }
            if line.curves.iter().all(|curve| curve.measured.is_empty()) {
                let size = if of.names.is_empty() { 2 } else { 6 };
                chart.draw_series(middle().map(|at| Circle::new(at, size, colour.filled())))?;
            }
        }
        root.present()?;
        Ok(())
    }

    /// A line's band within this section of the axis.
    fn band(&self, line: &Line<'_>) -> Vec<(f64, f64, f64)> {
        let mut band = line.band();
        band.retain(|(x, ..)| self.x.contains(&place(*x, self.chart.x.1)));
        band
    }
}

/// Groups curves that can share a linear axis. Curves far above the others, which would flatten those to a line, get
/// their own panel.
fn levels<'a>(chart: &Chart, curves: &[&'a Curve]) -> Vec<Vec<&'a Curve>> {
    let ends = |curve: &Curve| {
        let ys: Vec<f64> = curve.simulated.iter().chain(&curve.measured).map(|sample| sample.y).collect();
        range(&ys).unwrap_or_default()
    };
    let can_be_apart = chart.y.1 == Scale::Linear && !chart.from_zero;
    if !can_be_apart || curves.iter().any(|curve| ends(curve).0 <= 0.0) {
        return vec![curves.to_vec()];
    }
    let mut sorted = curves.to_vec();
    sorted.sort_by(|a, b| ends(a).0.total_cmp(&ends(b).0));
    let (mut levels, mut highest): (Vec<Vec<&Curve>>, f64) = (Vec::new(), 0.0);
    for curve in sorted {
        let (low, high) = ends(curve);
        match levels.last_mut() {
            Some(level) if low <= APART * highest => level.push(curve),
            _ => levels.push(vec![curve]),
        }
        highest = highest.max(high);
    }
    // Within a panel, keep the chart's order.
    for level in &mut levels {
        level.sort_by_key(|curve| curves.iter().position(|other| std::ptr::eq(*other, *curve)));
    }
    levels
}

/// Positions of curves in a drawing, and the drawing's height.
fn places(chart: &Chart, curves: &[&Curve], of: fn(&Curve) -> &[Sample]) -> (Vec<Vec<(f64, f64)>>, f64) {
    let at = |s: &Sample| (place(s.x, chart.x.1), place(s.y, chart.y.1));
    let all = curves.iter().map(|curve| of(curve).iter().map(at).collect()).collect();
    let ys = curves.iter().flat_map(|curve| curve.simulated.iter().chain(&curve.measured)).map(|s| at(s).1);
    let (low, high) = range(&ys.collect::<Vec<_>>()).unwrap_or_default();
    (all, high - if chart.from_zero { low.min(0.0) } else { low })
}

/// Groups curves that coincide in all simulated and measured points.
fn lines<'a>(chart: &Chart, curves: &[&'a Curve]) -> Vec<Vec<&'a Curve>> {
    let (simulated, height) = places(chart, curves, |curve| &curve.simulated);
    let (measured, _) = places(chart, curves, |curve| &curve.measured);
    let groups = coinciding(&[&simulated, &measured], height);
    groups.into_iter().map(|group| group.into_iter().map(|n| curves[n]).collect()).collect()
}

/// Assigns dash levels to lines that would hide others.
fn broken<'a>(chart: &Chart, lines: Vec<Vec<&'a Curve>>) -> Vec<Line<'a>> {
    let first: Vec<&Curve> = lines.iter().map(|curves| curves[0]).collect();
    let (places, height) = places(chart, &first, |curve| &curve.simulated);
    let breaks = breaks(&places, height);
    lines.into_iter().zip(breaks).map(|(curves, breaks)| Line { curves, breaks }).collect()
}

/// Splits the horizontal axis into sections: one for a numeric axis, as many as needed for the labels of categories.
fn pieces(chart: &Chart, (low, high): (f64, f64)) -> Vec<Range<f64>> {
    /// Gap between labels, in pixels.
    const GAP: usize = 14;
    if chart.names.is_empty() {
        let margin = (high - low).max(1e-9) * 0.03;
        return vec![low - margin..high + margin];
    }
    let longest = chart.names.iter().map(|name| shortened(name).chars().count()).max().unwrap_or(1);
    let room = (WIDTH - AXIS - RIGHT) as usize / (longest * LETTER as usize + GAP);
    let (names, count) = (chart.names.len(), chart.names.len().div_ceil(room.max(1)));
    // Equal sections, except for the last.
    let each = names.div_ceil(count);
    let piece = |n: usize| {
        let first = (n * each) as f64 - 0.5;
        first..first + each as f64
    };
    (0..count).map(piece).collect()
}

/// Shortens a label to fit below the axis.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        letters if letters <= LONGEST_NAME => name.to_owned(),
        _ => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
    }
}

/// A point with a tooltip.
struct Told {
    at: (i32, i32),
    text: String,
    lines: usize,
}

/// Adds a tooltip at a position, or appends it to one that is too close to be distinguished.
fn tell(told: &mut Vec<Told>, at: (i32, i32), text: String) {
    /// Distance in pixels.
    const CLOSE: i32 = 3;
    let is_close = |other: &&mut Told| {
        (other.at.0 - at.0).abs() <= CLOSE && (other.at.1 - at.1).abs() <= CLOSE && other.lines < MOST_LINES
    };
    match told.iter_mut().find(is_close) {
        Some(other) if other.text.lines().any(|line| line == text) => {}
        Some(other) => {
            other.text += "\n";
            other.text += &text;
            other.lines += 1;
        }
        None => told.push(Told { at, text, lines: 1 }),
    }
}

impl Told {
    fn to_svg(&self) -> String {
        let text = escaped(&self.text);
        let (x, y) = self.at;
        format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"9\"><title>{text}</title></circle>\n")
    }
}

/// Escapes text for SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// Replaces the marker colours by theme variables, and adds a title and a flexible size.
fn themed(svg: &str, title: &str, height: u32) -> String {
    let mut themed = svg.to_owned();
    for i in 0..COLOURS {
        themed = themed.replace(&format!("#0100{i:02X}"), &format!("var(--curve-{i})"));
    }
    for (marker, variable) in [("#020000", "--muted"), ("#020001", "--grid")] {
        themed = themed.replace(marker, &format!("var({variable})"));
    }
    // Common text attributes are hoisted and SVG defaults removed, since a page has tens of drawings.
    let from = themed.find(" font-family").unwrap_or(themed.len());
    let font = themed[from..].split_once(" opacity").map(|(font, _)| font.to_owned()).unwrap_or_default();
    for needless in [&font, " opacity=\"1\"", " stroke-width=\"1\""].into_iter().filter(|n| !n.is_empty()) {
        themed = themed.replace(needless, "");
    }
    let themed = with_grid_as_one(&themed);
    let fixed = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
    themed.replacen(&fixed, &format!("<svg role=\"img\" aria-label=\"{}\"{font}", escaped(title)), 1)
}

/// Merges the lines of grid and axes into one path, since they all look the same.
fn with_grid_as_one(svg: &str) -> String {
    let piece = |line: &str| {
        let parts: Vec<&str> = line.split('"').collect();
        match parts[..] {
            ["<line stroke=", "var(--grid)", _, x1, _, y1, _, x2, _, y2, _] => {
                Some(format!("M{x1},{y1} {x2},{y2}"))
            }
            ["<polyline fill=", "none", _, "var(--grid)", _, points, _] => {
                Some(format!("M{}", points.trim()))
            }
            _ => None,
        }
    };
    let (mut grid, mut rest) = (String::new(), String::with_capacity(svg.len()));
    for line in svg.lines() {
        match piece(line) {
            Some(piece) => grid += &piece,
            None => rest.extend([line, "\n"]),
        }
    }
    // Behind everything else: right after the opening tag.
    let path = format!("\n<path fill=\"none\" stroke=\"var(--grid)\" d=\"{grid}\"/>\n");
    rest.replacen('\n', &path, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(label: &str, ys: &[f64]) -> Curve {
        let sample = |(x, &y): (usize, &f64)| Sample { x: x as f64, y, low: None, high: None };
        let simulated = ys.iter().enumerate().map(sample).collect();
        Curve { label: label.into(), simulated, measured: Vec::new() }
    }

    fn chart(curves: Vec<Curve>) -> Chart {
        Chart {
            id: "c".into(),
            title: "t".into(),
            text: String::new(),
            x: ("x".into(), Scale::Linear),
            names: Vec::new(),
            y: ("latency (ns)".into(), Scale::Linear),
            from_zero: false,
            rings: "measured".into(),
            curves,
        }
    }

    fn labels(panel: &Panel<'_>) -> Vec<String> {
        panel.legend().into_iter().map(|entry| entry.label).collect()
    }

    #[test]
    fn curves_that_coincide_are_one_line_that_says_how_far_they_are_apart() {
        let mut apart = curve("warm", &[300.0, 310.0, 500.0]);
        apart.measured = vec![Sample { x: 0.0, y: 400.0, low: None, high: None }];
        let near = [("cold", 0.0), ("thrash", 2.0), ("again", 1.0)]
            .map(|(label, more)| curve(label, &[500.0, 510.0 + more, 520.0]));
        let chart = chart([&near[..], &[apart]].concat());
        let panels = chart.panels();
        assert_eq!(panels.len(), 1);
        assert_eq!(labels(&panels[0]), ["cold, thrash and again: 2 ns apart at most", "warm"]);
        let svg = panels[0].to_svg(true).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 1, "the spread");
        assert!(svg.contains("cold, thrash and again: 1, simulated 510 to 512 ns"), "{svg}");
    }

    #[test]
    fn curves_that_were_measured_apart_are_two_lines() {
        let mut curves = ["one", "other"].map(|label| curve(label, &[500.0, 510.0]));
        for (curve, y) in curves.iter_mut().zip([400.0, 600.0]) {
            curve.measured = vec![Sample { x: 0.0, y, low: None, high: None }];
        }
        assert_eq!(chart(curves.to_vec()).panels()[0].legend().len(), 2);
    }

    #[test]
    fn what_is_far_above_the_others_has_a_panel() {
        let chart = chart(vec![curve("slow", &[90_000.0, 95_000.0]), curve("fast", &[500.0, 900.0])]);
        let panels = chart.panels();
        assert_eq!(panels.iter().map(labels).collect::<Vec<_>>(), [["fast"], ["slow"]]);
        assert!(panels.iter().all(|panel| panel.height < HEIGHT.0 && panel.to_svg(true).is_some()));
    }

    #[test]
    fn as_many_lines_as_colours_are_in_a_panel() {
        let many = (0..20).map(|n| curve(&n.to_string(), &[f64::from(100 + 10 * n), 100.0]));
        let chart = chart(many.collect());
        assert_eq!(chart.panels().iter().map(|panel| panel.legend().len()).collect::<Vec<_>>(), [8, 8, 4]);
    }

    #[test]
    fn names_have_as_many_panels_as_give_them_room() {
        let mut chart = chart(vec![curve("rate", &[1.0, 2.0, 3.0, 4.0, 5.0])]);
        chart.names = (0..5).map(|n| format!("a-machine-of-some-{n}")).collect();
        let panels = chart.panels();
        let drawn: Vec<String> = panels.iter().map(|panel| panel.to_svg(true).unwrap()).collect();
        assert_eq!(drawn.len(), 3);
        for (n, name) in chart.names.iter().enumerate() {
            let with: Vec<usize> =
                (0..3).filter(|&panel| drawn[panel].contains(&format!("\n{name}\n"))).collect();
            assert_eq!(with, [n / 2], "{name}");
        }
    }
}
