//! Source texts and places in them.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// A text and its display name: a file's path, or `--set` for an override on the command line.
pub struct Source {
    /// Name in messages.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// SHA-256 of the text, once asked for.
    digest: OnceLock<String>,
}

impl Source {
    /// A text with its name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), digest: OnceLock::new() }
    }
}

/// Stands for the text by its digest: each value that was read has its source, so that a thousand values would be as many texts.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.get_or_init(|| files::sha256(self.text.as_bytes()));
        f.debug_struct("Source").field("name", &self.name).field("text", digest).finish()
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Eq for Source {}

/// A range of bytes of one [`Source`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The text.
    pub source: Arc<Source>,
    /// Byte offsets into the text, within its length and on character boundaries.
    pub span: std::ops::Range<usize>,
}

impl Place {
    /// A place in `source`; invalid offsets are moved to the nearest valid one.
    pub(crate) fn new(source: &Arc<Source>, span: std::ops::Range<usize>) -> Self {
        let text = &source.text;
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let mut end = span.end.clamp(start, text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        Self { source: Arc::clone(source), span: start..end }
    }

    /// Line and column of the first byte, both counted from one.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..self.span.start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }

    /// The same start, limited to the first line: what to underline if the whole is longer.
    pub(crate) fn first_line(&self) -> Self {
        let end =
            self.source.text[self.span.clone()].find('\n').map_or(self.span.end, |n| self.span.start + n);
        Self { source: Arc::clone(&self.source), span: self.span.start..end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a scenario is kept under has each value with its source.
    #[test]
    fn a_place_stands_for_its_text_and_is_short() {
        let place = |text: &str| format!("{:?}", Place::new(&Arc::new(Source::new("a.toml", text)), 0..1));
        let text = "x = 1\n".repeat(10_000);
        assert!(place(&text).len() < 200, "{}", place(&text));
        assert_ne!(place(&text), place(&(text.clone() + "\n")));
    }
}
