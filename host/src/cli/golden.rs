//! Golden cases in YAML, of plugins and of rules: their parser, and the output of their results.

use super::{
    exit::InputResult,
    output::{Output, OutputArgs, Tone, print},
    progress,
    yaml::{as_written, parse_error_message},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_saphyr::Spanned;
use std::{
    fmt, fs,
    marker::PhantomData,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Cases to run
#[derive(Args, Debug)]
pub(super) struct CasesArgs {
    /// Files of golden cases: YAML documents that are a case or a list of cases
    #[arg(required = true)]
    cases: Vec<PathBuf>,
    /// Only the cases whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// A case.
pub(super) trait Case: Sized {
    /// The case as written.
    type Written: DeserializeOwned;

    /// Converts the written case at a place.
    fn from_written(written: Self::Written, place: String) -> Result<Self>;

    fn name(&self) -> &str;

    /// File and line, for people.
    fn place(&self) -> &str;
}

/// The result of a case.
pub(super) trait Outcome: Serialize {
    /// The case's name and place.
    fn case(&self) -> (&str, &str);

    /// The problem, as a sentence; none if the case passes.
    fn problem(&self) -> Option<&str>;

    /// Details of the problem, in lines.
    fn details(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The results of the cases.
#[derive(Debug, Serialize)]
struct Report<O> {
    passed: usize,
    failed: usize,
    cases: Vec<O>,
}

impl CasesArgs {
    /// The selected cases, in order.
    pub(super) fn read<C: Case>(&self) -> Result<Vec<C>> {
        let mut cases: Vec<C> = read(&self.cases)?;
        if let Some(part) = &self.filter {
            cases.retain(|case| case.name().contains(part));
            if cases.is_empty() {
                bail!("no case has a name that contains {part:?}");
            }
        }
        Ok(cases)
    }
}

/// The cases of all files, in order. Names are unique, because users select cases by them.
pub(super) fn read<C: Case>(files: &[PathBuf]) -> Result<Vec<C>> {
    let mut cases: Vec<C> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("reading the cases {}", file.display())).readable()?;
        for case in parse::<C>(&text, file)? {
            if let Some(first) = cases.iter().find(|earlier| earlier.name() == case.name()) {
                bail!("{}: there is a case {:?} already, at {}; give it another name", case.place(), case.name(), first.place());
            }
            cases.push(case);
        }
    }
    if cases.is_empty() {
        bail!("there are no cases in {}", files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "));
    }
    Ok(cases)
}

/// The cases of one file: each document is a case or a list of them.
pub(super) fn parse<C: Case>(text: &str, file: &Path) -> Result<Vec<C>> {
    let documents: Vec<Spanned<Document<C::Written>>> = serde_saphyr::from_multiple_with_options(text, as_written!()).map_err(|error| {
        let line = error.location().map(|at| format!(":{}", at.line())).unwrap_or_default();
        anyhow!("{}{line}: {}", file.display(), parse_error_message(&error))
    })?;
    let mut cases = Vec::new();
    for Spanned { value, referenced, .. } in documents {
        match value {
            Document::One(case) => cases.push((referenced.line(), *case)),
            Document::Many(many) => cases.extend(many.into_iter().map(|case| (case.referenced.line(), case.value))),
        }
    }
    let placed = cases.into_iter().map(|(line, written)| {
        let place = format!("{}:{line}", file.display());
        C::from_written(written, place.clone()).map_err(|error| anyhow!("{place}: {error}"))
    });
    placed.collect()
}

/// Runs each case, and prints the result. The exit code shows whether all passed.
pub(super) fn run<C: Case, O: Outcome>(cases: &[C], output: OutputArgs, mut outcome: impl FnMut(&C) -> Result<O>) -> Result<ExitCode> {
    let mut report = Report { passed: 0, failed: 0, cases: Vec::new() };
    for case in cases {
        progress::set(format!("asking {}", case.name()));
        let outcome = outcome(case)?;
        *if outcome.problem().is_none() { &mut report.passed } else { &mut report.failed } += 1;
        if output.output == Output::Table {
            print(&result_lines(&outcome));
        }
        report.cases.push(outcome);
    }
    output.print(&report, || format!("{} passed, {} failed", report.passed, report.failed))?;
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result of a case, in lines.
pub(super) fn result_lines(outcome: &impl Outcome) -> String {
    let (name, place) = outcome.case();
    let Some(problem) = outcome.problem() else { return format!("{}      {name}", Tone::Good.paint("ok")) };
    let lines = [format!("{}  {name} ({place})", Tone::Bad.paint("FAILED")), format!("        {problem}")];
    lines.into_iter().chain(outcome.details().iter().map(|line| format!("        {line}"))).collect::<Vec<_>>().join("\n")
}

/// One document.
enum Document<W> {
    One(Box<W>),
    Many(Vec<Spanned<W>>),
}

impl<'de, W: Deserialize<'de>> Deserialize<'de> for Document<W> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct CaseOrList<W>(PhantomData<W>);
        impl<'de, W: Deserialize<'de>> Visitor<'de> for CaseOrList<W> {
            type Value = Document<W>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a case or a list of cases")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Document<W>, M::Error> {
                W::deserialize(MapAccessDeserializer::new(map)).map(Box::new).map(Document::One)
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Document<W>, S::Error> {
                let mut cases = Vec::new();
                while let Some(case) = seq.next_element()? {
                    cases.push(case);
                }
                Ok(Document::Many(cases))
            }
        }
        from.deserialize_any(CaseOrList(PhantomData))
    }
}
