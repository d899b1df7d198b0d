//! Where what a picture shows goes: one column, so that texts have the whole width and cables run beside it.

use std::collections::BTreeMap;

use super::scene::{Anchor, Appearance, CableKind, DrawnCable, DrawnHost, DrawnSocket, Scene, Thing};

/// Width of the picture: at this many pixels, its texts have their own size.
pub(super) const WIDTH: f64 = 420.0;
/// Distance of lines of text, and room between boxes.
const LINE: f64 = 14.0;
const GAP: f64 = 8.0;
/// Around a box's text.
const PAD: f64 = 5.0;
/// Length of the line that leads to a box.
const STUB: f64 = 30.0;
/// Width of a letter at the size of the texts, on average and with room to spare for wide fonts.
const LETTER: f64 = 6.3;

/// Boxes, lines and texts with their places.
#[derive(Default)]
pub(super) struct Drawing {
    pub title: String,
    pub height: f64,
    pub boxes: Vec<Rectangle>,
    pub lines: Vec<Stroke>,
    pub texts: Vec<Caption>,
}

pub(super) struct Rectangle {
    pub class: &'static str,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A line along points, as wide as it carries.
pub(super) struct Stroke {
    pub class: &'static str,
    pub points: Vec<(f64, f64)>,
    pub width: f64,
}

/// A line of text, with what comes first in bold.
pub(super) struct Caption {
    pub class: &'static str,
    pub x: f64,
    pub y: f64,
    pub bold: String,
    pub text: String,
}

/// The width of what carries so many GB/s.
fn width(carries: f64) -> f64 {
    /// One pixel for 4 GB/s, which is about a lane of Gen5.
    const PER_GB: f64 = 0.25;
    (carries * PER_GB).clamp(1.0, 16.0)
}

pub(super) fn lay_out(scene: &Scene) -> Drawing {
    let tracks = tracks(scene);
    let gutter = tracks.values().max().map_or(0.0, |&most| (most + 1) as f64 * TRACK + GAP);
    let mut layout = Arrangement {
        drawing: Drawing { title: scene.title.clone(), ..Drawing::default() },
        right: WIDTH - GAP - gutter,
        y: GAP,
        at: BTreeMap::new(),
        used: BTreeMap::new(),
    };
    scene.hosts.iter().for_each(|host| layout.host(host));
    for thing in &scene.outside {
        layout.y += GAP / 2.0;
        layout.thing(thing, GAP, None);
    }
    for (number, cable) in scene.cables.iter().enumerate() {
        layout.cable(cable, tracks[&number]);
    }
    layout.legend(scene);
    layout.drawing.height = layout.y + GAP;
    layout.drawing
}

/// Distance of cables beside each other.
const TRACK: f64 = 9.0;

/// For each cable, by number, the track in which it runs beside the boxes: those that overlap have different ones.
fn tracks(scene: &Scene) -> BTreeMap<usize, usize> {
    let mut order = BTreeMap::new();
    fn walk(thing: &Thing, order: &mut BTreeMap<Anchor, usize>) {
        let next = order.len();
        order.insert(thing.key, next);
        thing.below.iter().for_each(|below| walk(below, order));
    }
    for host in &scene.hosts {
        host.sockets.iter().flat_map(|socket| &socket.slots).for_each(|thing| walk(thing, &mut order));
    }
    scene.outside.iter().for_each(|thing| walk(thing, &mut order));
    let span = |cable: &DrawnCable| {
        let ends = cable.ends.map(|end| order.get(&end).copied().unwrap_or(0));
        (ends[0].min(ends[1]), ends[0].max(ends[1]))
    };
    let mut spans: Vec<(usize, usize, usize)> = scene
        .cables
        .iter()
        .enumerate()
        .map(|(number, cable)| {
            let (first, last) = span(cable);
            (last - first, first, number)
        })
        .collect();
    // Short ones run next to the boxes.
    spans.sort_unstable();
    let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut found = BTreeMap::new();
    for (length, first, number) in spans {
        let last = first + length;
        let is_free = |track: &Vec<(usize, usize)>| track.iter().all(|&(a, b)| b < first || last < a);
        let track = taken.iter().position(is_free).unwrap_or_else(|| {
            taken.push(Vec::new());
            taken.len() - 1
        });
        taken[track].push((first, last));
        found.insert(number, track);
    }
    found
}

struct Arrangement {
    drawing: Drawing,
    /// Right end of boxes outside hosts; cables run beyond.
    right: f64,
    y: f64,
    /// Top and height of each thing's box.
    at: BTreeMap<Anchor, (f64, f64)>,
    /// How many cables lead to a box so far.
    used: BTreeMap<Anchor, usize>,
}

impl Arrangement {
    fn text(&mut self, class: &'static str, x: f64, bold: &str, text: &str, right: f64) {
        for (number, line) in wrap(bold, text, right - x).into_iter().enumerate() {
            self.y += LINE;
            let bold = if number == 0 { bold.to_owned() } else { String::new() };
            self.drawing.texts.push(Caption { class, x, y: self.y - 3.5, bold, text: line });
        }
    }

    fn host(&mut self, host: &DrawnHost) {
        let top = self.y;
        self.y += PAD;
        let (left, right) = (GAP + PAD, self.right - PAD);
        let (bold, text) = host.title.split_once(':').unwrap_or((&host.title, ""));
        self.text("title", left, bold, text.trim(), right);
        for guest in &host.guests {
            self.text("", left, "", guest, right);
        }
        let mut sockets = Vec::new();
        for (number, socket) in host.sockets.iter().enumerate() {
            if let Some((_, text)) = host.interconnect.as_ref().filter(|_| number == 1) {
                self.y += PAD;
                self.text("quiet", left + 2.0 * PAD + 16.0, "", text, right);
            }
            self.y += PAD;
            sockets.push(self.y + 10.0);
            self.socket(number, socket, left + 2.0 * PAD + 16.0, right);
        }
        if let (Some((carries, _)), [first, .., last]) = (&host.interconnect, &sockets[..]) {
            let (bus, width) = (left + 8.0, width(*carries));
            let edge = left + 2.0 * PAD + 16.0;
            self.drawing.lines.push(Stroke {
                class: "inter",
                points: vec![(bus, *first), (bus, *last)],
                width,
            });
            for &y in &sockets {
                self.drawing.lines.push(Stroke {
                    class: "inter",
                    points: vec![(bus, y), (edge - width / 2.0, y)],
                    width,
                });
            }
        }
        self.y += PAD;
        self.drawing.boxes.insert(
            0,
            Rectangle { class: "host", x: GAP, y: top, width: self.right - GAP, height: self.y - top },
        );
        self.y += GAP;
    }

    /// The cores at the left, the memory at the right, and what is in the slots below.
    fn socket(&mut self, number: usize, socket: &DrawnSocket, left: f64, right: f64) {
        let top = self.y;
        let middle = left + (right - left) * 0.5;
        let half = 26.0;
        self.y += PAD;
        self.text("", left + PAD, &format!("socket {number}"), "", middle - half);
        self.text("", left + PAD, "", &socket.cores, middle - half);
        let mut bottom = self.y;
        if let Some((carries, text)) = &socket.memory {
            self.y = top + PAD;
            let x = middle + half;
            self.text("", x + PAD, "memory", "", right);
            self.text("", x + PAD, "", text, right);
            bottom = bottom.max(self.y);
            let height = bottom + PAD - top;
            self.drawing.boxes.push(Rectangle { class: "memory", x, y: top, width: right - x, height });
            let y = top + height / 2.0;
            let points = vec![(middle - half, y), (x, y)];
            self.drawing.lines.push(Stroke { class: "memory", points, width: width(*carries) });
        }
        let height = bottom + PAD - top;
        self.drawing.boxes.push(Rectangle {
            class: "socket",
            x: left,
            y: top,
            width: middle - half - left,
            height,
        });
        self.y = top + height;
        self.children(&socket.slots, left + 10.0, self.y, right);
        if !socket.free.is_empty() {
            self.y += PAD;
            self.text("quiet", left + 10.0, "", &format!("free: {}", socket.free.join(", ")), right);
        }
    }

    /// Boxes below each other, joined to a stem that comes from `from`.
    fn children(&mut self, things: &[Thing], stem: f64, from: f64, right: f64) {
        let mut end = None;
        for thing in things {
            self.y += PAD;
            let middle = self.thing(thing, stem + STUB, Some((stem, right)));
            end = Some(middle);
        }
        if let Some(end) = end {
            let points = vec![(stem, from), (stem, end)];
            self.drawing.lines.push(Stroke { class: "stem", points, width: 1.5 });
        }
    }

    /// A box, with what is below it; returns where a line meets it.
    fn thing(&mut self, thing: &Thing, left: f64, joined: Option<(f64, f64)>) -> f64 {
        let right = joined.map_or(self.right, |(_, right)| right);
        let top = self.y;
        self.y += PAD - 2.0;
        self.text("", left + PAD, &thing.name, &thing.model, right - PAD);
        for line in &thing.detail {
            self.text("", left + PAD, "", line, right - PAD);
        }
        self.y += PAD - 1.0;
        let height = self.y - top;
        let class = match thing.look {
            Appearance::Device => "device",
            Appearance::Switch => "switch",
            Appearance::Ntb => "ntb",
            Appearance::Station => "station",
            Appearance::Further => "further",
        };
        self.drawing.boxes.push(Rectangle { class, x: left, y: top, width: right - left, height });
        self.at.insert(thing.key, (top, height));
        let middle = top + height / 2.0;
        if let Some((stem, _)) = joined {
            let points = vec![(stem, middle), (left, middle)];
            self.drawing.lines.push(Stroke { class: "pcie", points, width: width(thing.carries) });
        }
        self.children(&thing.below, left + 10.0, top + height, right);
        middle
    }

    fn cable(&mut self, cable: &DrawnCable, track: usize) {
        let x = self.right + GAP / 2.0 + (track as f64 + 0.5) * TRACK;
        let class = match cable.kind {
            CableKind::Ethernet => "ethernet",
            CableKind::Ntb => "cable",
            CableKind::SameDevice => "same",
        };
        let mut end = |key: Anchor| {
            let &(top, height) = self.at.get(&key)?;
            let used = self.used.entry(key).or_default();
            *used += 1;
            // Several beside each other, from the middle outwards.
            let step = (used.div_euclid(2) as f64) * 6.0 * if *used % 2 == 0 { 1.0 } else { -1.0 };
            let y = (top + height / 2.0 + step).clamp(top + 3.0, top + height - 3.0);
            let inside = matches!(key, Anchor::Device(..) | Anchor::PcieSwitch(..));
            Some((if inside { self.right - PAD } else { self.right }, y))
        };
        if let (Some(a), Some(b)) = (end(cable.ends[0]), end(cable.ends[1])) {
            let points = vec![a, (x, a.1), (x, b.1), b];
            self.drawing.lines.push(Stroke { class, points, width: width(cable.carries) });
        }
    }

    fn legend(&mut self, scene: &Scene) {
        let mut kinds = vec![("pcie", "PCIe")];
        if scene.hosts.iter().any(|host| host.interconnect.is_some()) {
            kinds.push(("inter", "sockets"));
        }
        for (kind, class, name) in
            [(CableKind::Ethernet, "ethernet", "Ethernet"), (CableKind::Ntb, "cable", "NTB cable")]
        {
            if scene.cables.iter().any(|cable| cable.kind == kind) {
                kinds.push((class, name));
            }
        }
        self.y += GAP;
        let mut x = GAP;
        self.y += LINE;
        for (class, name) in kinds {
            let y = self.y - 7.0;
            self.drawing.lines.push(Stroke { class, points: vec![(x, y), (x + 16.0, y)], width: 4.0 });
            x += 20.0;
            self.drawing.texts.push(Caption {
                class: "quiet",
                x,
                y: self.y - 3.5,
                bold: String::new(),
                text: name.to_owned(),
            });
            x += name.len() as f64 * LETTER + GAP;
        }
        let right = WIDTH - GAP;
        self.text("quiet", GAP, "", "A line is as wide as it carries: these, 16 GB/s.", right);
    }
}

/// Divides a text into lines that fit into a width; the first also holds what is bold.
fn wrap(bold: &str, text: &str, width: f64) -> Vec<String> {
    let most = (width / LETTER).max(8.0) as usize;
    let mut lines = vec![String::new()];
    // Bold letters are wider.
    let mut used = if bold.is_empty() { 0 } else { bold.chars().count() * 11 / 10 + 1 };
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + length > most {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        used += length + 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_to_their_width() {
        let lines = wrap("nic0", "a card with a name that goes on and on, NIC", 20.0 * LETTER);
        assert!(lines.len() > 2 && lines.iter().all(|line| line.len() <= 20), "{lines:?}");
        assert_eq!(wrap("x", "", 100.0), [""]);
    }
}
