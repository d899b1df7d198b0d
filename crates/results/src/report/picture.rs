//! Charts as a stand-alone picture that supports light and dark themes.

use super::chart::Chart;
use super::panel::{LegendEntry, WIDTH, escaped};
use crate::table::wrapped;

/// The page's style sheet, which starts with the theme's colours.
const STYLE: &str = include_str!("style.css");
/// Height of a line of text, in pixels.
const LINE: u32 = 20;
/// Maximum letters per line of a title, and of a legend: in the widest of usual fonts, both fit.
const TITLE_LETTERS: usize = 44;
const LETTERS: usize = 54;
/// Space above a title and left of text, in pixels.
const MARGIN: u32 = 14;
/// Space left of the drawing, into which the axis' name reaches.
const AXIS_ROOM: u32 = 8;
/// The light theme's ground of a picture, `--card`.
const GROUND: &str = "#ffffff";

/// Charts from top to bottom, each with title and legend; `None` if there is nothing to draw.
pub fn picture(charts: &[Chart]) -> Option<String> {
    let (mut y, mut parts) = (0, String::new());
    for chart in charts {
        let panels: Vec<_> = chart.panels().into_iter().filter_map(|p| Some((p.to_svg(false)?, p))).collect();
        if panels.is_empty() {
            continue;
        }
        y += MARGIN;
        for line in wrapped(&chart.title, 0, TITLE_LETTERS) {
            y += LINE;
            parts += &format!(
                "<text x=\"{MARGIN}\" y=\"{y}\" font-size=\"17\" font-weight=\"600\" fill=\"var(--text)\">{}</text>\n",
                escaped(&line)
            );
        }
        for (svg, panel) in panels {
            for entry in panel.legend().iter().filter(|_| !chart.needs_no_legend()) {
                parts += &told(entry, &mut y);
            }
            y += LINE / 2;
            let height = panel.height;
            let place = format!(
                "<svg x=\"{AXIS_ROOM}\" y=\"{y}\" overflow=\"visible\" width=\"{WIDTH}\" height=\"{height}\" "
            );
            parts += &svg.replacen("<svg ", &place, 1);
            y += height;
        }
    }
    if parts.is_empty() {
        return None;
    }
    let titles: Vec<&str> = charts.iter().map(|chart| &*chart.title).collect();
    let (parts, dark) = coloured(&parts);
    let width = WIDTH + AXIS_ROOM;
    let picture = format!(
        "<svg width=\"{width}\" height=\"{y}\" viewBox=\"0 0 {width} {y}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         font-family=\"Helvetica, Arial, sans-serif\" aria-label=\"{}\">\n<style>@media (prefers-color-scheme: dark) {{ {dark}}}</style>\n\
         <rect width=\"{width}\" height=\"{y}\" fill=\"{GROUND}\"/>\n{parts}</svg>\n",
        escaped(&titles.join("; "))
    );
    Some(files::shown(&picture).into_owned())
}

/// Replaces the theme's variables by its light colours, which every program reads, and returns the rules that replace
/// these in a dark theme.
fn coloured(parts: &str) -> (String, String) {
    let theme = |text: &str| -> Vec<(String, String)> {
        let pairs = text.split([';', '{', '}']).filter_map(|rule| rule.trim().split_once(": "));
        let variables = pairs.filter(|(name, _)| name.starts_with("--"));
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let all = &STYLE[..STYLE.find("* {").unwrap_or(0)];
    let (light, dark) = all.split_once("@media").unwrap_or((all, ""));
    let (light, dark) = (theme(light), theme(dark));
    let (mut parts, mut rules) = (parts.to_owned(), String::new());
    for (name, colour) in &light {
        let variable = format!("var({name})");
        if !parts.contains(&variable) && name != "--card" {
            continue;
        }
        parts = parts.replace(&variable, colour);
        if let Some((_, other)) = dark.iter().find(|(dark, _)| dark == name) {
            for key in ["fill", "stroke"] {
                rules += &format!("[{key}=\"{colour}\"] {{ {key}: {other} }} ");
            }
        }
    }
    (parts, rules)
}

/// A line of the legend.
fn told(entry: &LegendEntry, y: &mut u32) -> String {
    let dashes = ["", "stroke-dasharray=\"8 5\"", "stroke-dasharray=\"3 4\""][entry.breaks.min(2)];
    let (left, end, text) = (MARGIN, MARGIN + 22, MARGIN + 30);
    let mut parts = format!(
        "<path fill=\"none\" d=\"M{left} {}H{end}\" stroke=\"var(--curve-{})\" stroke-width=\"3\" {dashes}/>\n",
        *y + LINE - 5,
        entry.colour
    );
    for line in wrapped(&entry.label, 0, LETTERS) {
        *y += LINE;
        parts += &format!(
            "<text x=\"{text}\" y=\"{y}\" font-size=\"15\" fill=\"var(--text)\">{}</text>\n",
            escaped(&line)
        );
    }
    parts
}
