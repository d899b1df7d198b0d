//! Errors in files, with location and remedy.

use crate::source::Place;
use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use files::{masked, shown};
use std::fmt;

/// An error in an input text, or what is possible and perhaps not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The text's name, usually a file's path.
    pub file: String,
    /// Line, counted from one.
    pub line: usize,
    /// Column in characters, counted from one.
    pub column: usize,
    /// The error, on one line; names the key.
    pub message: String,
    /// A short label for the underlined text.
    pub label: String,
    /// The remedy: allowed values, the nearest key, or what to do.
    pub help: Option<String>,
    /// It is possible, and perhaps not meant.
    is_doubt: bool,
    place: Place,
}

impl Diagnostic {
    pub(crate) fn new(place: &Place, message: impl Into<String>) -> Self {
        let place = place.first_line();
        let (line, column) = place.line_and_column();
        let file = place.source.name.clone();
        Self {
            file,
            line,
            column,
            message: message.into(),
            label: String::new(),
            help: None,
            is_doubt: false,
            place,
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Makes it a warning.
    pub(crate) fn doubt(mut self) -> Self {
        self.is_doubt = true;
        self
    }

    /// The message with its source line, underlined, in the style of a compiler. `colour` is for terminals.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let (message, file) = (shown(&self.message), shown(&self.file));
        let help = self.help.as_deref().map(shown);
        if self.place.source.text.is_empty() {
            // A name from the command line is already part of the message.
            let is_told = self.message.contains(&format!("`{}`", self.file));
            let origin = (!is_told).then(|| Origin::path(&*file));
            let help = help.as_deref().map(|help| Level::HELP.message(help));
            let group = Level::ERROR.primary_title(&*message).elements(origin).elements(help);
            return renderer.render(&[group]);
        }
        let (label, text) = (shown(&self.label), masked(&self.place.source.text));
        let label = if label.is_empty() { None } else { Some(&*label) };
        let snippet = Snippet::source(&*text)
            .path(&*file)
            .annotation(AnnotationKind::Primary.span(self.place.span.clone()).label(label));
        let level = if self.is_doubt { Level::WARNING } else { Level::ERROR };
        let mut group = level.primary_title(&*message).element(snippet);
        if let Some(help) = &help {
            group = group.element(Level::HELP.message(&**help));
        }
        renderer.render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({})", help.replace('\n', " ")),
            None => Ok(()),
        }
    }
}

/// All errors of an input, in order of its text. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.list())]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub(crate) fn new(mut all: Vec<Diagnostic>) -> Self {
        // A key that is both misspelt and missing is reported where it occurs first.
        all.sort_by(|a, b| (&a.file, a.place.span.start).cmp(&(&b.file, b.place.span.start)));
        all.dedup();
        Self(all)
    }

    /// A single error about something without a text.
    pub fn about(name: &str, message: impl Into<String>, help: Option<String>) -> Self {
        let source = std::sync::Arc::new(crate::source::Source::new(name, ""));
        let mut diagnostic = Diagnostic::new(&Place::new(&source, 0..0), message);
        diagnostic.help = help;
        Self(vec![diagnostic])
    }

    /// All errors of several inputs; `None` if there are none.
    pub fn together(several: impl IntoIterator<Item = Self>) -> Option<Self> {
        let all: Vec<Diagnostic> = several.into_iter().flat_map(|one| one.0).collect();
        (!all.is_empty()).then(|| Self::new(all))
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// All messages with their source lines. `colour` is for terminals.
    pub fn render(&self, colour: bool) -> String {
        self.0.iter().map(|d| d.render(colour)).collect::<Vec<_>>().join("\n\n")
    }

    fn list(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
