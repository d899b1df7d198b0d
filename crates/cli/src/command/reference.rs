//! `nearfar reference` and `nearfar new`: the keys of files, and templates for new ones.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use machine::{FileKind, KINDS};

use crate::failure::Failure;
use crate::output::{Fit, TextTable};
use crate::{Common, input, output};

/// Show every key of machine, part, kernel and scenario files: meaning, range, default.
#[derive(clap::Args)]
#[command(after_help = "\
Editors that know JSON Schema check files as they are written: with the line
  #:schema machine.schema.json
at the top of a file, Taplo and its plugins do.

Examples:
  nearfar reference
  nearfar reference scenario
  nearfar reference nic --schema nic.schema.json
  nearfar reference machine --markdown machine.md")]
pub struct ReferenceArgs {
    /// The kind of file; by default, lists all kinds.
    kind: Option<String>,
    /// Write Markdown to this file; - for standard output.
    #[arg(long, value_name = "FILE", requires = "kind", value_parser = output::file)]
    markdown: Option<PathBuf>,
    /// Write the JSON Schema to this file; - for standard output.
    #[arg(long, value_name = "FILE", requires = "kind", value_parser = output::file)]
    schema: Option<PathBuf>,
}

pub fn run(arguments: &ReferenceArgs) -> Result<ExitCode, Failure> {
    let Some(kind) = &arguments.kind else {
        let mut table = TextTable::new(["kind", "what it is"], Fit::Wrap);
        KINDS.iter().for_each(|kind| table.add(vec![kind.word.to_owned(), kind.about.to_owned()]));
        output::print(&table.render(output::width()));
        return Ok(ExitCode::SUCCESS);
    };
    let kind = find(kind)?;
    let options = [("--markdown", arguments.markdown.as_deref()), ("--schema", arguments.schema.as_deref())];
    output::Places::new(&options)?;
    let page = kind.markdown();
    if let Some(path) = &arguments.markdown {
        output::write(path, page.as_bytes())?;
    }
    if let Some(path) = &arguments.schema {
        let text = serde_json::to_string_pretty(&kind.schema()).map_err(Failure::new)? + "\n";
        output::write(path, text.as_bytes())?;
    }
    if arguments.markdown.is_none() && arguments.schema.is_none() {
        output::print(page.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn find(word: &str) -> Result<&'static FileKind, Failure> {
    FileKind::by_word(word).ok_or_else(|| {
        let words: Vec<&str> = KINDS.iter().map(|kind| kind.word).collect();
        let known = format!("there are {}", words.join(", "));
        Failure::unknown("kind of file", word, words.iter().copied(), &known)
    })
}

/// Write a template: a file that extends an existing one, or a runnable scenario.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar new nic my-nic.toml                 a NIC that is `modern` but for what you change
  nearfar new machine my-box.toml --from dell-r730
  nearfar new machine my-box.toml \"sockets:2 cores:32 mem:8ch ddr5-4800 slots:4x16g5\"
  nearfar new scenario my-test.toml && nearfar run my-test.toml

A machine's line has sockets:N cores:N clock:2.6GHz llc:60MiB mem:8ch ddr5-4800 128GiB interconnect:48GB/s slots:4x16g5,8x4g5@1;
cores, llc and mem are those of one socket. What it does not say is from the nearest machine, which is named.")]
pub struct New {
    /// The kind of file.
    #[arg(value_parser = PossibleValuesParser::new(templates()))]
    kind: String,
    /// Where to write it; the file must not exist yet.
    #[arg(value_parser = output::file)]
    file: PathBuf,
    /// A machine in one line, such as "sockets:2 cores:32 mem:8ch ddr5-4800 slots:4x16g5".
    line: Vec<String>,
    /// Name of the file to extend; of a machine in one line, the most similar one if not given.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

/// Words of the kinds that there are templates of.
fn templates() -> impl Iterator<Item = &'static str> {
    KINDS.iter().filter(|kind| kind.template.is_some()).map(|kind| kind.word).chain(["scenario"])
}

/// Writes a template.
pub fn new(common: &Common, arguments: &New) -> Result<ExitCode, Failure> {
    if arguments.file.exists() {
        return Err(Failure::new(format!(
            "`{}` is there already; name another file",
            arguments.file.display()
        )));
    }
    let stem = arguments.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = stem.ok_or_else(|| Failure::new("the path names no file"))?;
    if arguments.file.extension().is_none_or(|extension| extension != "toml") {
        return Err(Failure::new("a file ends in .toml: that tells its path from a name"));
    }
    let library = input::library(common);
    if !arguments.line.is_empty() {
        if arguments.kind != "machine" {
            return Err(Failure::new("only a machine can be described in one line"));
        }
        let line = arguments.line.join(" ");
        return from_line(&library, arguments, &name, &line);
    }
    let kind = find(&arguments.kind)?;
    let [usual, example] = kind.template.unwrap_or(["netperf", ""]);
    let from = arguments.from.as_deref().unwrap_or(usual);
    let known = library.names(kind.folder);
    if !known.iter().any(|name| name == from) {
        let all = format!("there are {}", known.join(", "));
        return Err(Failure::unknown(&arguments.kind, from, known.iter().map(String::as_str), &all));
    }
    let text = match kind.template {
        None => {
            let text = kind.open(&library, from, None)?.text().to_owned();
            // Only the first name is the scenario's; later ones belong to hosts and devices.
            let old = text.lines().find(|line| line.starts_with("name = ")).unwrap_or_default();
            text.replacen(old, &format!("name = \"{name}\""), 1)
        }
        Some(_) => template(kind.word, &name, from, example),
    };
    output::write(&arguments.file, text.as_bytes())?;
    output::complain(&format!("written: {}", arguments.file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes a machine that a line describes.
fn from_line(
    library: &machine::Library,
    arguments: &New,
    name: &str,
    line: &str,
) -> Result<ExitCode, Failure> {
    let made = machine::outline(library, name, line, arguments.from.as_deref())?;
    output::write(&arguments.file, made.text.as_bytes())?;
    let file = arguments.file.display();
    let nearest = if arguments.from.is_some() { "" } else { ", the most similar machine" };
    output::complain(&format!(
        "written: {file}: what the line does not say is from {}{nearest}",
        made.relative
    ));
    if let Some(memory) = made.memory {
        output::complain(&output::prose(&format!(
            "memory of a socket: {memory}, as much as can be simulated"
        )));
    }
    if !made.inherited.is_empty() {
        output::complain(&output::prose(&format!("from there: {}", made.inherited.join(" "))));
    }
    output::complain(&format!("every figure with its source: nearfar machines {file}"));
    Ok(ExitCode::SUCCESS)
}

fn template(kind: &str, name: &str, from: &str, example: &str) -> String {
    let by_path = match kind {
        "machine" | "nic" | "drive" | "card" => {
            format!("# A scenario names it by its path, as in:  {kind} = \"{name}.toml\"\n")
        }
        _ => String::new(),
    };
    format!(
        "# Every key, with unit and range: nearfar reference {kind}\n\
         # What stands here now:           nearfar machines {from}\n\
         {by_path}\
         name = \"{name}\"\n\
         summary = \"as {from}, but for what is said here\"\n\
         extends = \"{from}\"\n\
         \n\
         # What differs, each figure with where it comes from; the line below shows the form.\n\
         # {example}\n"
    )
}
