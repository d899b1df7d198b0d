//! Provenance of a result, in the same form in all outputs.

use serde::{Deserialize, Serialize};

/// All that is needed to get a result again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of the program.
    pub version: String,
    /// The command line in shell syntax.
    pub command: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Changes to files: options as given, and a scenario's changes to the files that it refers to.
    pub changes: Vec<String>,
    /// The files that the result depends on.
    pub files: Vec<Input>,
}

/// An input file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its kind: `machine`, `card`, `kernel`, `scenario`, `claims`, `measured`.
    pub kind: String,
    /// Its path, or its name among the built-in files.
    pub name: String,
    /// SHA-256 of its bytes; for a folder of measured files, of names and bytes.
    pub sha256: String,
}

impl Provenance {
    /// A summary in a few lines of text.
    pub fn lines(&self) -> Vec<String> {
        /// Digits of a digest to show.
        const SHOWN: usize = 10;
        let mut lines = vec![format!("nearfar {}, seed {}: {}", self.version, self.seed, self.command)];
        if !self.changes.is_empty() {
            lines.push(format!("changed: {}", self.changes.join("; ")));
        }
        if !self.files.is_empty() {
            let file =
                |file: &Input| format!("{} {}", file.name, file.sha256.get(..SHOWN).unwrap_or(&file.sha256));
            lines.push(format!("from: {}", self.files.iter().map(file).collect::<Vec<_>>().join(", ")));
        }
        // One line each, and nothing that acts on a terminal.
        lines.iter().map(|line| files::shown(line).replace('\n', " ")).collect()
    }
}

/// Joins words into a shell command line, quoting special characters.
pub fn command_line<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let quoted = |word: S| {
        let word = word.as_ref();
        let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%^".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.to_owned(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_given_to_a_shell_again() {
        assert_eq!(command_line(["nearfar", "run", "a.toml"]), "nearfar run a.toml");
        assert_eq!(command_line(["--set", "x=\"90 ns\""]), "--set 'x=\"90 ns\"'");
        assert_eq!(command_line(["it's", ""]), "'it'\\''s' ''");
    }

    #[test]
    fn lines_name_every_change_and_every_file() {
        let provenance = Provenance {
            version: "1".into(),
            command: "nearfar run x".into(),
            seed: 7,
            changes: vec!["--set a=1".into(), "--set b=2".into()],
            files: vec![Input { kind: "machine".into(), name: "m.toml".into(), sha256: "ab".repeat(32) }],
        };
        let text = provenance.lines().join("\n");
        for part in ["nearfar 1, seed 7: nearfar run x", "--set a=1; --set b=2", "m.toml ababababab"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
