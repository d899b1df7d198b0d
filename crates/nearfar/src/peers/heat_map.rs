//! The ways between GPUs as heat maps.

use maud::{DOCTYPE, Markup, html};

use super::{MemoryCell, PeerCell, PeerMatrix};

/// Width and height of a cell, what is left of the cells and above them, and the place below, in pixels.
const CELL: (usize, usize) = (58, 30);
const MARGIN: (usize, usize) = (64, 54);
const BELOW: usize = 12;
/// Place for titles at least.
const LEAST: usize = 260;
/// Colours of the slowest and the fastest way: red, green and blue.
const ENDS: [[f64; 3]; 2] = [[253.0, 231.0, 206.0], [33.0, 113.0, 181.0]];
/// From this place between the two colours on, white letters are easier to read than black ones.
const DARK: f64 = 0.55;

/// One of the maps.
struct HeatMap {
    title: &'static str,
    unit: &'static str,
    rows: Vec<String>,
    columns: Vec<String>,
    /// Row, column, value, and what binds it.
    values: Vec<(usize, usize, f64, String)>,
    /// Whether less is faster.
    is_time: bool,
}

/// A cell of a map: its place, its colours, and what it says.
struct HeatCell {
    x: usize,
    y: usize,
    fill: String,
    letters: &'static str,
    text: String,
    /// For whoever points at it.
    more: String,
}

impl PeerMatrix {
    /// Rates and latencies of all pairs as SVG: the faster, the bluer. Who points at a cell is told what binds it.
    pub fn heat_map(&self) -> String {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", self.maps().into_string())
    }

    /// The maps as a page that needs no other file, with the other rates and what binds each way.
    pub fn page(&self) -> String {
        let title = format!("What GPUs of {} copy to each other and to memory", self.setup.name);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    title { (title) }
                    style { "body { font-family: sans-serif; margin: 1em auto; max-width: 60em } svg { max-width: 100%; height: auto } td { padding-right: 1em }" }
                }
                body {
                    h1 { (title) }
                    (self.maps())
                    table {
                        @for (what, rate) in &self.others { tr { td { (what) } td { (format!("{rate:.2} GB/s")) } } }
                    }
                    h2 { "Where the GPUs are" }
                    table {
                        @for (gpu, place) in self.places.iter().enumerate() { tr { td { "gpu" (gpu) } td { (place) } } }
                    }
                    h2 { "By which way, and what binds" }
                    table {
                        @for cell in &self.cells {
                            tr { td { "gpu" (cell.from) " to gpu" (cell.to) } td { (cell.hops.join(", ")) } td { (cell.binds) } }
                        }
                    }
                }
            }
        };
        page.into_string() + "\n"
    }

    /// The maps of pairs of GPUs, and of GPUs and memories.
    fn all_maps(&self) -> Vec<HeatMap> {
        let gpus: Vec<String> = (0..self.gpus).map(|gpu| format!("gpu{gpu}")).collect();
        let nodes: Vec<String> = self.nodes().map(|node| format!("node {node}")).collect();
        type Of<T> = fn(&T) -> Option<f64>;
        let pairs = |title, unit, value: Of<PeerCell>| HeatMap {
            title,
            unit,
            rows: gpus.clone(),
            columns: gpus.clone(),
            values: self
                .cells
                .iter()
                .filter_map(|cell| Some((cell.from, cell.to, value(cell)?, cell.told())))
                .collect(),
            is_time: unit == "us",
        };
        let memories = |title, unit, value: Of<MemoryCell>| HeatMap {
            title,
            unit,
            rows: nodes.clone(),
            columns: gpus.clone(),
            values: self
                .memories
                .iter()
                .filter_map(|cell| Some((cell.node as usize, cell.gpu, value(cell)?, String::new())))
                .collect(),
            is_time: unit == "ns",
        };
        vec![
            pairs("One way, from row to column", "GB/s", |cell| cell.one_way),
            pairs("Both ways at once", "GB/s", |cell| cell.both_ways),
            pairs("A flag from kernel to kernel", "us", |cell| cell.flag),
            memories("From a node's memory", "GB/s", |cell| cell.from_memory),
            memories("To a node's memory", "GB/s", |cell| cell.to_memory),
            memories("A kernel's load from a node's memory", "ns", |cell| cell.load),
        ]
    }

    fn maps(&self) -> Markup {
        let maps = self.all_maps();
        let wide = MARGIN.0 + (self.gpus * CELL.0 + BELOW).max(LEAST);
        let highs: Vec<usize> = maps.iter().map(HeatMap::height).collect();
        let all: usize = highs.iter().sum();
        let at = |number: usize| highs[..number].iter().sum::<usize>();
        html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(wide) height=(all) viewBox=(format!("0 0 {wide} {all}"))
                font-family="sans-serif" font-size="13" role="img" {
                rect width=(wide) height=(all) fill="#fff" {}
                @for (number, map) in maps.iter().enumerate() {
                    g transform=(format!("translate(0 {})", at(number))) { (map.drawn()) }
                }
            }
        }
    }
}

impl HeatMap {
    fn height(&self) -> usize {
        MARGIN.1 + self.rows.len() * CELL.1 + BELOW
    }

    fn drawn(&self) -> Markup {
        let Self { title, unit, .. } = self;
        html! {
            text x="4" y="20" font-weight="bold" { (title) ", " (unit) }
            @for (column, name) in self.columns.iter().enumerate() {
                text x=(MARGIN.0 + column * CELL.0 + CELL.0 / 2) y=(MARGIN.1 - 8) text-anchor="middle" { (name) }
            }
            @for (row, name) in self.rows.iter().enumerate() {
                text x=(MARGIN.0 - 8) y=(MARGIN.1 + row * CELL.1 + CELL.1 / 2 + 5) text-anchor="end" { (name) }
            }
            @for cell in self.cells() {
                g {
                    title { (cell.more) }
                    rect x=(cell.x) y=(cell.y) width=(CELL.0) height=(CELL.1) fill=(cell.fill) stroke="#fff" {}
                    text x=(cell.x + CELL.0 / 2) y=(cell.y + CELL.1 / 2 + 5) text-anchor="middle" fill=(cell.letters) { (cell.text) }
                }
            }
        }
    }

    fn cells(&self) -> impl Iterator<Item = HeatCell> {
        let values = || self.values.iter().map(|(_, _, value, _)| *value);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        // What differs by less than a tenth looks alike.
        let (least, most) =
            if self.is_time { (least, most.max(1.1 * least)) } else { (least.min(0.9 * most), most) };
        self.values.iter().map(move |(row, column, value, told)| {
            let share = if most > least { (value - least) / (most - least) } else { 1.0 };
            let share = if self.is_time { 1.0 - share } else { share };
            let [red, green, blue] =
                [0, 1, 2].map(|part| (ENDS[0][part] + share * (ENDS[1][part] - ENDS[0][part])).round());
            let digits = if self.unit == "ns" { 0 } else { 2 };
            HeatCell {
                x: MARGIN.0 + column * CELL.0,
                y: MARGIN.1 + row * CELL.1,
                fill: format!("rgb({red},{green},{blue})"),
                letters: if share > DARK { "#fff" } else { "#000" },
                text: format!("{value:.digits$}"),
                more: format!(
                    "{}, {}: {value:.digits$} {}{told}",
                    self.rows[*row], self.columns[*column], self.unit
                ),
            }
        })
    }
}

impl PeerCell {
    /// Its way and what binds it, for whoever points at it.
    fn told(&self) -> String {
        format!("; by {}; {}", self.hops.join(", "), self.binds)
    }
}
