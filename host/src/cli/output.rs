//! What subcommands print: a table for people, JSON for machines.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, Write};

/// In which form a subcommand answers.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OutputArgs {
    /// A table for people, or JSON for machines.
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
            Output::Json => print(&serde_json::to_string_pretty(value)?),
        }
        Ok(())
    }
}

/// Prints a text and a line's end. A closed pipe (`| head`) is no error of ours.
pub(crate) fn print(text: &str) {
    writeln!(io::stdout().lock(), "{}", text.trim_end()).ok();
}

/// Columns below their headings, each as wide as its widest cell.
pub(crate) fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    table(&headings, rows)
}

/// The same, where only the program knows how many columns there are.
pub(crate) fn table(headings: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.as_ref().len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("   ").trim_end().to_owned() + "\n"
    };
    let rows = rows.iter().map(|row| line(&mut row.as_ref().iter().map(String::as_str)));
    std::iter::once(line(&mut headings.iter().map(AsRef::as_ref))).chain(rows).collect()
}

/// Names with what they stand for, one below the other.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines = pairs.iter().map(|(name, value)| format!("{name:<width$}   {value}"));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["é".to_owned(), "1".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(columns(["NAME", "N"], &rows), "NAME     N\né        1\nlonger\n");
        assert_eq!(pairs(&[("a", "1".into()), ("bcd", "2".into())]), "a     1\nbcd   2\n");
    }
}
