//! The picture as SVG.

use maud::{PreEscaped, html};

use super::layout::{Drawing, WIDTH};

const STYLE: &str = "\
text { font: 11px 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif; fill: #1b1f24 }
.b { font-weight: bold } .title { font-size: 12.5px } .quiet { fill: #57606a }
rect { stroke-width: 1; rx: 3px }
.host { fill: #f6f8fa; stroke: #afb8c1 } .socket { fill: #fff; stroke: #57606a } .memory { fill: #fff8e1; stroke: #b08800 }
.device { fill: #e7f1fd; stroke: #2f6fb7 } .further { fill: #f3f8fe; stroke: #2f6fb7; stroke-dasharray: 3 2 }
.switch { fill: #eaf6ea; stroke: #3f8f4f } .ntb { fill: #f3eafa; stroke: #8250a8 } .station { fill: #fff; stroke: #57606a }
polyline { fill: none; stroke-linejoin: round }
polyline.memory { fill: none; stroke: #d4a72c } .stem { stroke: #57606a } .inter { stroke: #cf5b3a; stroke-linecap: square } .pcie { stroke: #2f6fb7 }
.ethernet { stroke: #3f8f4f } .cable { stroke: #8250a8 } .same { stroke: #2f6fb7; stroke-dasharray: 3 2 }";

/// The picture's text.
pub(super) fn write(drawing: &Drawing) -> String {
    let number = |value: f64| format!("{}", (value * 10.0).round() / 10.0);
    let height = number(drawing.height);
    let points = |points: &[(f64, f64)]| {
        let each: Vec<String> = points.iter().map(|&(x, y)| format!("{},{}", number(x), number(y))).collect();
        each.join(" ")
    };
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height)
            viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            title { (drawing.title) }
            style { (PreEscaped(STYLE)) }
            rect x="0" y="0" width=(WIDTH) height=(height) fill="#fff" {}
            @for b in &drawing.boxes {
                rect class=(b.class) x=(number(b.x)) y=(number(b.y)) width=(number(b.width)) height=(number(b.height)) {}
            }
            @for line in &drawing.lines {
                polyline class=(line.class) points=(points(&line.points)) stroke-width=(number(line.width)) {}
            }
            @for text in &drawing.texts {
                text class=(text.class) x=(number(text.x)) y=(number(text.y)) {
                    @if !text.bold.is_empty() { tspan class="b" { (text.bold) } " " }
                    (text.text)
                }
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", picture.into_string())
}
