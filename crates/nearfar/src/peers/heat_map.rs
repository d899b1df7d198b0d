//! The ways between GPUs as heat maps.

use maud::{DOCTYPE, Markup, html};

use super::{PeerCell, PeerMatrix};

/// Width and height of a cell, what is left of the cells and above them, and the place below, in pixels.
const CELL: (usize, usize) = (58, 30);
const MARGIN: (usize, usize) = (64, 54);
const BELOW: usize = 12;
/// Colours of the slowest and the fastest way: red, green and blue.
const ENDS: [[f64; 3]; 2] = [[253.0, 231.0, 206.0], [33.0, 113.0, 181.0]];
/// From this place between the two colours on, white letters are easier to read than black ones.
const DARK: f64 = 0.55;

/// What one of the maps shows.
struct HeatQuantity {
    title: &'static str,
    unit: &'static str,
    value: fn(&PeerCell) -> Option<f64>,
    /// Whether less is faster.
    is_time: bool,
}

const QUANTITIES: [HeatQuantity; 3] = [
    HeatQuantity { title: "One way", unit: "GB/s", value: |cell| cell.one_way, is_time: false },
    HeatQuantity { title: "Both ways at once", unit: "GB/s", value: |cell| cell.both_ways, is_time: false },
    HeatQuantity {
        title: "A flag from kernel to kernel",
        unit: "us",
        value: |cell| cell.flag,
        is_time: true,
    },
];

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
        let title = format!("What GPUs of {} copy to each other", self.setup.name);
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
                    h2 { "What binds" }
                    table {
                        @for cell in &self.cells { tr { td { "gpu" (cell.from) " to gpu" (cell.to) } td { (cell.binds) } } }
                    }
                }
            }
        };
        page.into_string() + "\n"
    }

    fn maps(&self) -> Markup {
        let (wide, high) = (MARGIN.0 + self.gpus * CELL.0 + BELOW, MARGIN.1 + self.gpus * CELL.1 + BELOW);
        let all = high * QUANTITIES.len();
        html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(wide) height=(all) viewBox=(format!("0 0 {wide} {all}"))
                font-family="sans-serif" font-size="13" role="img" {
                rect width=(wide) height=(all) fill="#fff" {}
                @for (number, quantity) in QUANTITIES.iter().enumerate() {
                    g transform=(format!("translate(0 {})", number * high)) { (self.map(quantity)) }
                }
            }
        }
    }

    fn map(&self, quantity: &HeatQuantity) -> Markup {
        let HeatQuantity { title, unit, .. } = quantity;
        html! {
            text x="4" y="20" font-weight="bold" { (title) ", " (unit) ", from row to column" }
            @for gpu in 0..self.gpus {
                text x=(MARGIN.0 + gpu * CELL.0 + CELL.0 / 2) y=(MARGIN.1 - 8) text-anchor="middle" { "gpu" (gpu) }
                text x=(MARGIN.0 - 8) y=(MARGIN.1 + gpu * CELL.1 + CELL.1 / 2 + 5) text-anchor="end" { "gpu" (gpu) }
            }
            @for cell in self.heat(quantity) {
                g {
                    title { (cell.more) }
                    rect x=(cell.x) y=(cell.y) width=(CELL.0) height=(CELL.1) fill=(cell.fill) stroke="#fff" {}
                    text x=(cell.x + CELL.0 / 2) y=(cell.y + CELL.1 / 2 + 5) text-anchor="middle" fill=(cell.letters) { (cell.text) }
                }
            }
        }
    }

    fn heat(&self, quantity: &HeatQuantity) -> Vec<HeatCell> {
        let HeatQuantity { unit, value, is_time, .. } = quantity;
        let values = || self.cells.iter().filter_map(value);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let cell = |cell: &PeerCell| {
            let value = value(cell)?;
            let share = if most > least { (value - least) / (most - least) } else { 1.0 };
            let share = if *is_time { 1.0 - share } else { share };
            let [red, green, blue] =
                [0, 1, 2].map(|part| (ENDS[0][part] + share * (ENDS[1][part] - ENDS[0][part])).round());
            Some(HeatCell {
                x: MARGIN.0 + cell.to * CELL.0,
                y: MARGIN.1 + cell.from * CELL.1,
                fill: format!("rgb({red},{green},{blue})"),
                letters: if share > DARK { "#fff" } else { "#000" },
                text: format!("{value:.2}"),
                more: format!("gpu{} to gpu{}: {value:.2} {unit}; {}", cell.from, cell.to, cell.binds),
            })
        };
        self.cells.iter().filter_map(cell).collect()
    }
}
