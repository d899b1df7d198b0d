//! Charts as a stand-alone picture that supports light and dark themes.

use super::chart::Chart;
use super::panel::{LegendEntry, WIDTH, escaped};
use crate::table::wrapped;

/// The page's style sheet, which starts with the theme's colours.
const STYLE: &str = include_str!("style.css");
/// Height of a line of text, in pixels.
const LINE: u32 = 20;
/// Maximum letters per line.
const LETTERS: usize = 62;
/// Space above a title and left of text, in pixels.
const MARGIN: u32 = 14;

/// Charts from top to bottom, each with title and legend; `None` if there is nothing to draw.
pub fn picture(charts: &[Chart]) -> Option<String> {
    let (mut y, mut parts) = (0, String::new());
    for chart in charts {
        let panels: Vec<_> = chart.panels().into_iter().filter_map(|p| Some((p.to_svg(false)?, p))).collect();
        if panels.is_empty() {
            continue;
        }
        y += MARGIN;
        for line in wrapped(&chart.title, 0, LETTERS) {
            y += LINE;
            parts += &format!("<text x=\"{MARGIN}\" y=\"{y}\" class=\"title\">{}</text>\n", escaped(&line));
        }
        for (svg, panel) in panels {
            for entry in panel.legend().iter().filter(|_| !chart.needs_no_legend()) {
                parts += &told(entry, &mut y);
            }
            y += LINE / 2;
            let height = panel.height;
            let place = format!("<svg y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" ");
            parts += &svg.replacen("<svg ", &place, 1);
            y += height;
        }
    }
    if parts.is_empty() {
        return None;
    }
    let theme = &STYLE[..STYLE.find("* {").unwrap_or(0)];
    let titles: Vec<&str> = charts.iter().map(|chart| &*chart.title).collect();
    Some(format!(
        "<svg width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-label=\"{}\">\n<style>{theme}svg {{ background: var(--card) }} text {{ font-family: sans-serif }} \
         .told {{ fill: var(--text); font-size: 15px }} .title {{ fill: var(--text); font-size: 17px; font-weight: 600 }}</style>\n{parts}</svg>\n",
        escaped(&titles.join("; "))
    ))
}

/// A line of the legend.
fn told(entry: &LegendEntry, y: &mut u32) -> String {
    let dashes = ["", "stroke-dasharray=\"8 5\"", "stroke-dasharray=\"3 4\""][entry.breaks.min(2)];
    let (left, end, text) = (MARGIN, MARGIN + 22, MARGIN + 30);
    let mut parts = format!(
        "<path d=\"M{left} {}H{end}\" stroke=\"var(--curve-{})\" stroke-width=\"3\" {dashes}/>\n",
        *y + LINE - 5,
        entry.colour
    );
    for line in wrapped(&entry.label, 0, LETTERS) {
        *y += LINE;
        parts += &format!("<text x=\"{text}\" y=\"{y}\" class=\"told\">{}</text>\n", escaped(&line));
    }
    parts
}
