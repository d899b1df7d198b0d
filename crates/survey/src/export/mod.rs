//! A machine as other tools read it: hwloc's XML (version 2) and NCCL's topology.

mod hwloc;
mod nccl;

pub use nccl::NcclRate;

use std::fmt::Write as _;

/// XML as it is written: elements by depth.
#[derive(Default)]
struct XmlText {
    text: String,
    depth: usize,
}

/// A value as it may stand between quotes.
pub(crate) fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        match c {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '"' => text += "&quot;",
            // No others may stand in XML.
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}

impl XmlText {
    fn line(&mut self, name: &str, attributes: &[(&str, String)], end: &str) {
        let _ = write!(self.text, "{:1$}<{name}", "", 2 * self.depth);
        for (key, value) in attributes {
            let _ = write!(self.text, " {key}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.text, "{end}");
    }

    /// An element without others in it.
    fn empty(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.line(name, attributes, "/>");
    }

    fn open(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.line(name, attributes, ">");
        self.depth += 1;
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        let _ = writeln!(self.text, "{:1$}</{name}>", "", 2 * self.depth);
    }
}
