//! Pictures as PDF, for papers: what [`picture`](super::picture()) draws, as vectors. Text is in Helvetica, one of the fonts that
//! every reader of PDF has.

use pdf_writer::{Content, Finish as _, Name, Pdf, Rect, Ref, Str};
use roxmltree::{Document, Node};

/// Points per pixel of the drawing.
const SCALE: f32 = 0.75;
/// Widths of Helvetica's letters from the space on, in thousandths of the font's size (Adobe's font metrics).
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];
/// Width of other letters.
const OTHER_WIDTH: u16 = 556;

/// How elements within another one are drawn.
#[derive(Clone)]
struct Style {
    fill: Option<[f32; 3]>,
    stroke: Option<[f32; 3]>,
    width: f32,
    dashes: Vec<f32>,
    size: f32,
    is_bold: bool,
    anchor: f32,
    opacity: f32,
}

/// A picture as a page of its size; `None` if it is not one of ours.
pub fn pdf(svg: &str) -> Option<Vec<u8>> {
    let document = Document::parse(svg).ok()?;
    let root = document.root_element();
    let (width, height) = (number(&root, "width")?, number(&root, "height")?);
    let mut content = Content::new();
    content.transform([SCALE, 0.0, 0.0, -SCALE, 0.0, SCALE * height]);
    let style = Style {
        fill: Some([0.0; 3]),
        stroke: None,
        width: 1.0,
        dashes: Vec::new(),
        size: 16.0,
        is_bold: false,
        anchor: 0.0,
        opacity: 1.0,
    };
    for child in root.children().filter(Node::is_element) {
        draw(&mut content, &child, &style);
    }
    let [catalog, pages, page, stream, plain, bold, faint] = [1, 2, 3, 4, 5, 6, 7].map(Ref::new);
    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let mut of_page = pdf.page(page);
    of_page.media_box(Rect::new(0.0, 0.0, SCALE * width, SCALE * height)).parent(pages).contents(stream);
    let mut resources = of_page.resources();
    resources.fonts().pair(Name(b"F0"), plain).pair(Name(b"F1"), bold);
    resources.ext_g_states().pair(Name(b"Faint"), faint);
    resources.finish();
    of_page.finish();
    for (font, name) in [(plain, &b"Helvetica"[..]), (bold, b"Helvetica-Bold")] {
        pdf.type1_font(font).base_font(Name(name)).encoding_predefined(Name(b"WinAnsiEncoding"));
    }
    // Areas behind curves and bars.
    pdf.ext_graphics(faint).non_stroking_alpha(0.3).stroking_alpha(0.55);
    pdf.stream(stream, &content.finish());
    Some(pdf.finish())
}

fn draw(content: &mut Content, node: &Node<'_, '_>, outer: &Style) {
    let style = outer.with(node);
    let name = node.tag_name().name();
    if ["style", "title"].contains(&name) {
        return;
    }
    content.save_state();
    if style.opacity < 1.0 {
        content.set_parameters(Name(b"Faint"));
    }
    if let Some([r, g, b]) = style.fill {
        content.set_fill_rgb(r, g, b);
    }
    if let Some([r, g, b]) = style.stroke {
        content.set_stroke_rgb(r, g, b).set_line_width(style.width);
        content.set_dash_pattern(style.dashes.iter().copied(), 0.0);
    }
    let of = |key| number(node, key).unwrap_or(0.0);
    match name {
        "svg" | "g" => {
            content.transform([1.0, 0.0, 0.0, 1.0, of("x"), of("y")]);
            node.children().filter(Node::is_element).for_each(|child| draw(content, &child, &style));
        }
        "rect" => {
            content.rect(of("x"), of("y"), of("width"), of("height"));
            paint(content, &style);
        }
        "line" => {
            content.move_to(of("x1"), of("y1")).line_to(of("x2"), of("y2"));
            paint(content, &Style { fill: None, ..style });
        }
        "circle" => {
            circle(content, of("cx"), of("cy"), of("r"));
            paint(content, &style);
        }
        "polyline" | "polygon" => {
            let points = numbers(node.attribute("points").unwrap_or_default());
            for (n, point) in points.chunks_exact(2).enumerate() {
                match n {
                    0 => content.move_to(point[0], point[1]),
                    _ => content.line_to(point[0], point[1]),
                };
            }
            if name == "polygon" {
                content.close_path();
            }
            paint(content, &style);
        }
        "path" => {
            path(content, node.attribute("d").unwrap_or_default());
            paint(content, &style);
        }
        "text" => text(content, node, &style),
        _ => {}
    }
    content.restore_state();
}

impl Style {
    /// The style of an element.
    fn with(&self, node: &Node<'_, '_>) -> Self {
        let colour = |key: &str, outer: Option<[f32; 3]>| node.attribute(key).map_or(outer, rgb);
        Self {
            fill: colour("fill", self.fill),
            stroke: colour("stroke", self.stroke),
            width: number(node, "stroke-width").unwrap_or(self.width),
            dashes: node.attribute("stroke-dasharray").map_or_else(|| self.dashes.clone(), numbers),
            size: number(node, "font-size").unwrap_or(self.size),
            is_bold: node.attribute("font-weight").map_or(self.is_bold, |_| true),
            anchor: match node.attribute("text-anchor") {
                Some("middle") => 0.5,
                Some("end") => 1.0,
                _ => self.anchor,
            },
            opacity: number(node, "opacity").unwrap_or(1.0),
        }
    }
}

/// Fills and strokes the path.
fn paint(content: &mut Content, style: &Style) {
    match (style.fill, style.stroke) {
        (Some(_), Some(_)) => content.fill_nonzero_and_stroke(),
        (Some(_), None) => content.fill_nonzero(),
        (None, Some(_)) => content.stroke(),
        (None, None) => content.end_path(),
    };
}

fn circle(content: &mut Content, x: f32, y: f32, r: f32) {
    // How far the control points of a quarter circle are from its ends.
    let k = 0.552_284_8 * r;
    content.move_to(x + r, y);
    content.cubic_to(x + r, y + k, x + k, y + r, x, y + r);
    content.cubic_to(x - k, y + r, x - r, y + k, x - r, y);
    content.cubic_to(x - r, y - k, x - k, y - r, x, y - r);
    content.cubic_to(x + k, y - r, x + r, y - k, x + r, y);
    content.close_path();
}

/// A path of absolute moves and lines, `M` and `H`.
fn path(content: &mut Content, d: &str) {
    let mut at = (0.0, 0.0);
    for part in d.split_inclusive(['M', 'H']).collect::<Vec<_>>().windows(2) {
        let values = numbers(part[1].trim_end_matches(['M', 'H']));
        match part[0].chars().last() {
            Some('H') => {
                at.0 = values.first().copied().unwrap_or(at.0);
                content.line_to(at.0, at.1);
            }
            _ => {
                for (n, point) in values.chunks_exact(2).enumerate() {
                    at = (point[0], point[1]);
                    match n {
                        0 => content.move_to(at.0, at.1),
                        _ => content.line_to(at.0, at.1),
                    };
                }
            }
        }
    }
}

fn text(content: &mut Content, node: &Node<'_, '_>, style: &Style) {
    let of = |key| number(node, key).unwrap_or(0.0);
    let bytes = encoded(node.text().unwrap_or_default().trim());
    let width = |byte: &u8| {
        let place = usize::from(*byte).checked_sub(usize::from(b' '));
        f32::from(place.and_then(|place| WIDTHS.get(place)).copied().unwrap_or(OTHER_WIDTH))
    };
    // Letters of the bold font are some per cent wider.
    let letters = bytes.iter().map(width).sum::<f32>() * if style.is_bold { 1.06 } else { 1.0 };
    let shift = -style.anchor * letters * style.size / 1000.0;
    let dy = node.attribute("dy").map_or(0.0, |dy| match dy.split_at(dy.len().saturating_sub(2)) {
        (number, "em") => number.parse::<f32>().unwrap_or(0.0) * style.size,
        (number, "ex") => number.parse::<f32>().unwrap_or(0.0) * style.size * 0.52,
        _ => dy.parse().unwrap_or(0.0),
    });
    let (x, y) = (of("x"), of("y"));
    let is_upright = node.attribute("transform").is_none_or(|turn| !turn.starts_with("rotate(270"));
    let matrix = match is_upright {
        true => [1.0, 0.0, 0.0, -1.0, x + shift, y + dy],
        false => [0.0, -1.0, -1.0, 0.0, x + dy, y - shift],
    };
    let font = if style.is_bold { Name(b"F1") } else { Name(b"F0") };
    content.begin_text().set_font(font, style.size).set_text_matrix(matrix).show(Str(&bytes)).end_text();
}

/// Text in the encoding of the fonts (Windows code page 1252).
fn encoded(text: &str) -> Vec<u8> {
    let byte = |letter: char| match letter {
        ' '..='~' => letter as u8,
        '\u{a0}'..='\u{ff}' => letter as u32 as u8,
        '−' | '–' => 0x96,
        '—' => 0x97,
        '…' => 0x85,
        '“' => 0x93,
        '”' => 0x94,
        '’' => 0x92,
        _ => b'?',
    };
    text.chars().map(byte).collect()
}

fn number(node: &Node<'_, '_>, key: &str) -> Option<f32> {
    node.attribute(key)?.trim_end_matches("px").parse().ok()
}

fn numbers(text: &str) -> Vec<f32> {
    text.split([' ', ',']).filter_map(|number| number.parse().ok()).collect()
}

/// `#rrggbb`; `None` for none.
fn rgb(colour: &str) -> Option<[f32; 3]> {
    let hex = u32::from_str_radix(colour.strip_prefix('#')?, 16).ok()?;
    Some([16, 8, 0].map(|shift| (hex >> shift & 0xff) as f32 / 255.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_picture_draws_is_on_the_page() {
        let svg = "<svg width=\"100\" height=\"80\" xmlns=\"http://www.w3.org/2000/svg\">\
                   <style>x</style><text x=\"5\" y=\"9\" font-size=\"10\" fill=\"#ff0000\">µ − (a)</text>\
                   <svg y=\"20\"><path d=\"M1,2 3,4M14 69H36\" stroke=\"#0000ff\" fill=\"none\"/>\
                   <circle cx=\"4\" cy=\"5\" r=\"2\" fill=\"#00ff00\"/></svg></svg>";
        let bytes = pdf(svg).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("%PDF-") && text.trim_end().ends_with("%%EOF"));
        for part in [
            "/MediaBox [0 0 75 60]",
            "1 0 0 rg",
            "1 2 m",
            "3 4 l",
            "14 69 m",
            "36 69 l",
            "0 1 0 rg",
            "/Helvetica",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let is_encoded = bytes.windows(4).any(|part| part == [0xb5, b' ', 0x96, b' ']);
        assert!(is_encoded || text.to_lowercase().contains("b5209620"), "{text}");
        assert_eq!(pdf("no picture"), None);
    }
}
