//! The output of subcommands: a table for people, JSON for machines.

use super::progress;
use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal, Write},
};

/// The assumed width of a terminal.
const TERMINAL_WIDTH: usize = 100;

/// The minimum width that is honoured.
const MIN_WIDTH: usize = 40;

/// Output format of a subcommand
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OutputArgs {
    /// A table for people, or JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    #[default]
    Table,
    Json,
}

impl OutputArgs {
    /// Prints one of the two.
    pub(crate) fn print(self, value: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        match self.output {
            Output::Table => print(&table()),
            Output::Json => print_raw(&serde_json::to_string_pretty(value)?),
        }
        Ok(())
    }
}

/// Prints a text and a line end. A closed pipe (`| head`) is not an error. Colors are omitted if stdout isn't a terminal, or if `NO_COLOR`
/// is set.
pub(crate) fn print(text: &str) {
    progress::interrupt(|| writeln!(anstream::stdout().lock(), "{}", text.trim_end()).ok());
}

/// Prints text for programs, unchanged.
fn print_raw(text: &str) {
    progress::interrupt(|| writeln!(io::stdout().lock(), "{text}").ok());
}

/// The width at which lines of tables are truncated: that of COLUMNS, otherwise that of a terminal. None: a pipe gets whole lines.
pub(crate) fn line_width() -> Option<usize> {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    columns.filter(|columns| *columns >= MIN_WIDTH).or_else(|| io::stdout().is_terminal().then_some(TERMINAL_WIDTH))
}

/// Writes a line to stderr, in addition to a command's output.
pub(crate) fn note(text: impl Display) {
    progress::interrupt(|| writeln!(anstream::stderr().lock(), "{text}").ok());
}

/// Writes an error to stderr.
pub(super) fn error(text: impl Display) {
    note(format!("{} {text}", Tone::Bad.paint("error:")));
}

/// The color of a word that rates something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    /// It needs attention.
    Attention,
    Bad,
}

impl Tone {
    /// A word in its color.
    pub(crate) fn paint(self, word: impl Display) -> String {
        let colour = match self {
            Self::Good => AnsiColor::Green,
            Self::Attention => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        let style: Style = colour.on_default();
        format!("{style}{word}{style:#}")
    }
}

/// The width of a cell on a terminal.
fn width(cell: &str) -> usize {
    strip_str(cell).to_string().chars().count()
}

/// Columns below their headings, each as wide as its widest cell.
pub(crate) fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    table(&headings, rows)
}

/// The same for a number of columns that is known only at runtime.
pub(crate) fn table(headings: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.as_ref().len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(self::width(cell));
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
        let pad = |cell: &str, wanted: usize| format!("{cell}{}", " ".repeat(wanted.saturating_sub(width(cell))));
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        padded.join("   ").trim_end().to_owned() + "\n"
    };
    let rows = rows.iter().map(|row| line(&mut row.as_ref().iter().map(String::as_str)));
    std::iter::once(line(&mut headings.iter().map(AsRef::as_ref))).chain(rows).collect()
}

/// Names with their values, one per line.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines = pairs.iter().map(|(name, value)| format!("{name:<width$}   {value}"));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// A number of things, such as "1 subject" and "2 subjects".
pub(crate) fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "subject")), ["0 subjects", "1 subject", "2 subjects"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["é".to_owned(), "1".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(columns(["NAME", "N"], &rows), "NAME     N\né        1\nlonger\n");
        let painted = [[Tone::Bad.paint("bad"), "1".to_owned()], ["longer".to_owned(), "2".to_owned()]];
        let printed = columns(["NAME", "N"], &painted);
        assert_eq!(strip_str(&printed).to_string(), "NAME     N\nbad      1\nlonger   2\n");
        assert!(printed.contains("\u{1b}[31mbad\u{1b}[0m   "), "{printed:?}");
        assert_eq!(pairs(&[("a", "1".into()), ("bcd", "2".into())]), "a     1\nbcd   2\n");
    }
}
