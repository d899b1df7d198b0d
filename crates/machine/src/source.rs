//! Source texts and places in them.

use std::sync::Arc;

/// A text and its display name: a file's path, or `--set` for an override on the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Name in messages.
    pub name: String,
    /// The whole text.
    pub text: String,
}

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
