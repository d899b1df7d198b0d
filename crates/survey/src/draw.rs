//! The machine as a drawing: nodes, bridges and devices with their links, what costs in red.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::export::escaped;
use crate::findings::Finding;
use crate::model::Survey;
use crate::pci::PciAddress;
use crate::show::{link_text, shortened};

/// Height of a line, indentation of a level, and width of all, in pixels.
const LINE: usize = 26;
const LEVEL: usize = 28;
const WIDTH: usize = 900;
/// Lines that a drawing has at most.
const MOST_LINES: usize = 2_000;

/// A line of the drawing.
struct DrawnLine {
    depth: usize,
    text: String,
    /// The link above it.
    link: String,
    is_bad: bool,
    /// Whether a bad device is below it.
    is_way: bool,
    /// What is wrong, for whoever points at it.
    why: String,
}

impl Survey {
    /// The machine as SVG: devices that findings are about, and the ways to them, are red.
    pub fn drawing(&self, findings: &[Finding]) -> String {
        let mut bad: BTreeMap<PciAddress, Vec<&str>> = BTreeMap::new();
        for finding in findings {
            finding
                .functions
                .iter()
                .for_each(|function| bad.entry(*function).or_default().push(&finding.title));
        }
        let ways: BTreeSet<PciAddress> = bad.keys().flat_map(|function| self.above(*function)).collect();
        let tree = self.tree();
        let roots = tree.get(&None).map_or(&[][..], Vec::as_slice);
        let mut lines = Vec::new();
        let mut groups: BTreeMap<Option<u32>, Vec<PciAddress>> =
            self.nodes.keys().map(|node| (Some(*node), Vec::new())).collect();
        for root in roots.iter().filter(|root| self.matters(&tree, **root)) {
            groups.entry(self.node_of(*root)).or_default().push(*root);
        }
        for (node, roots) in groups {
            let text = match node {
                Some(number) => {
                    let own = self.nodes.get(&number);
                    let memory = own
                        .and_then(|own| own.memory_bytes.value())
                        .map_or(String::new(), |bytes| format!(", {}", crate::show::size(bytes)));
                    let cpus = own
                        .and_then(|own| own.cpus.get())
                        .map_or(String::new(), |cpus| format!(", CPUs {}", shortened(&cpus.to_string(), 60)));
                    format!("node {number}{memory}{cpus}")
                }
                None if roots.is_empty() => continue,
                None => "node not known".to_owned(),
            };
            lines.push(DrawnLine {
                depth: 0,
                text,
                link: String::new(),
                is_bad: false,
                is_way: false,
                why: String::new(),
            });
            for root in roots {
                self.draw_branch(&tree, root, 1, (&bad, &ways), &mut lines);
            }
        }
        let title = self.overview().lines().next().unwrap_or_default().to_owned();
        svg(&title, &lines)
    }

    /// The drawing as a page that needs no other file, with the findings below it.
    pub fn page(&self, findings: &[Finding]) -> String {
        let title = self.overview().lines().next().unwrap_or_default().to_owned();
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<style>body {{ font-family: sans-serif; \
             font-size: 14px; max-width: 60em; margin: 1em auto; }} svg {{ max-width: 100%; }} li {{ margin: 0.8em 0; }} code {{ white-space: \
             pre-wrap; }}</style></head><body>\n{}<ol>\n",
            escaped(&title),
            self.drawing(findings)
        );
        for finding in findings {
            let share = finding.cost.share.map_or(String::new(), |share| format!("{:.0} %: ", 100.0 * share));
            let evidence: String =
                finding.evidence.iter().map(|line| format!("<br><small>{}</small>", escaped(line))).collect();
            let _ = writeln!(
                text,
                "<li id=\"{}\">{}<br>cost: {share}{} ({}){evidence}<br>cure: <code>{}</code></li>",
                escaped(&finding.id),
                escaped(&finding.title),
                escaped(&finding.cost.text),
                escaped(&finding.cost.source),
                escaped(&finding.cure)
            );
        }
        text + "</ol></body></html>\n"
    }

    fn draw_branch(
        &self,
        tree: &BTreeMap<Option<PciAddress>, Vec<PciAddress>>,
        address: PciAddress,
        depth: usize,
        (bad, ways): (&BTreeMap<PciAddress, Vec<&str>>, &BTreeSet<PciAddress>),
        lines: &mut Vec<DrawnLine>,
    ) {
        let is_vf = self.functions[&address].physical.value().is_some() && !bad.contains_key(&address);
        if depth > 64 || lines.len() >= MOST_LINES || is_vf || !self.matters(tree, address) {
            return;
        }
        let vfs =
            self.functions.values().filter(|function| function.physical.value() == Some(address)).count();
        let more = if vfs > 0 { format!(", {vfs} virtual functions") } else { String::new() };
        lines.push(DrawnLine {
            depth,
            text: format!("{address} {}{more}", self.describe(address)),
            link: link_text(&self.functions[&address]),
            is_bad: bad.contains_key(&address),
            is_way: ways.contains(&address),
            why: bad.get(&address).map_or(String::new(), |titles| titles.join("; ")),
        });
        for child in tree.get(&Some(address)).into_iter().flatten() {
            self.draw_branch(tree, *child, depth + 1, (bad, ways), lines);
        }
    }
}

fn svg(title: &str, lines: &[DrawnLine]) -> String {
    let height = LINE * (lines.len() + 2);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"12\" y=\"20\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    // Where the last line of each level is.
    let mut last: Vec<usize> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let (x, y) = (12 + LEVEL * line.depth, LINE * (number + 2));
        last.truncate(line.depth);
        if let Some(above) = last.last() {
            let stem = x - LEVEL + 8;
            let (colour, width) = if line.is_bad || line.is_way { ("#c00000", 2) } else { ("#808080", 1) };
            let _ = writeln!(
                text,
                "<path d=\"M{stem} {} V{} H{x}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
                above + 4,
                y - 5
            );
        }
        while last.len() < line.depth {
            last.push(y);
        }
        last.push(y);
        let colour = if line.is_bad { "#c00000" } else { "black" };
        let weight = if line.depth == 0 { " font-weight=\"bold\"" } else { "" };
        let link = if line.link.is_empty() { String::new() } else { format!("  ({})", line.link) };
        let why = if line.why.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escaped(&line.why))
        };
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{y}\" fill=\"{colour}\"{weight}>{why}{}</text>",
            x + 4,
            escaped(&format!("{}{link}", line.text))
        );
    }
    text + "</svg>\n"
}
