//! Findings about objects in files, and their output.

use crate::cli::{
    offline::files::SourceLocation,
    output::{Tone, counted},
};
use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The object or one of its planned objects would be rejected.
    Error,
    /// The object would be accepted with a warning for its user.
    Warning,
    /// The object would be accepted with an entry in the audit log.
    Audit,
}

/// The name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ObjectName {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A finding about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) file: String,
    pub(super) line: u64,
    #[serde(flatten)]
    pub(super) object: ObjectName,
    /// The field; empty for the whole object.
    pub(super) field: String,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(severity: Severity, place: &SourceLocation, object: &ObjectName, field: String, message: String) -> Self {
        Self { severity, file: place.file.title.clone(), line: place.line, object: object.clone(), field, message }
    }

    /// The finding in one line, in the format of compilers.
    pub(super) fn line(&self) -> String {
        let Self { severity, file, line, object: ObjectName { kind, name, .. }, field, message } = self;
        let mark = match severity {
            Severity::Error => String::new(),
            Severity::Warning => Tone::Attention.paint(" warning:"),
            Severity::Audit => Tone::Attention.paint(" audit:"),
        };
        let object = [kind.as_str(), name.as_str()].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let parts = [object.as_str(), field.as_str(), message.as_str()];
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        format!("{file}:{line}:{mark} {}", parts.replace('\n', " "))
    }
}

/// A check that was skipped, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct SkippedCheck {
    /// The rule, or the object.
    pub(super) what: String,
    pub(super) why: String,
    /// Whether it is a shipped rule: these are the same at each check, so nobody would read them.
    #[serde(skip)]
    pub(super) usual: bool,
}

/// The results of a check.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The number of checked objects.
    pub(super) objects: usize,
    /// The number of objects of others' kinds.
    pub(super) others: usize,
    /// A note on those of other projects and of unknown kinds, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) audits: usize,
    /// Ordered by file and line.
    pub(super) findings: Vec<Finding>,
    /// The number of objects with errors, on which no rule was evaluated.
    pub(super) unevaluated_objects: usize,
    /// The rules that weren't evaluated, each once.
    pub(super) not_evaluated: Vec<SkippedCheck>,
    /// The services that can't be planned from these files, so that their objects aren't known.
    pub(super) unplanned: Vec<SkippedCheck>,
    /// The services that aren't Ready with these files, because something is missing or may not be used.
    pub(super) not_ready: Vec<SkippedCheck>,
}

impl Report {
    /// Sorts everything, and counts.
    pub(super) fn settle(&mut self) {
        self.findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        let mut once: Vec<Finding> = Vec::with_capacity(self.findings.len());
        for finding in self.findings.drain(..) {
            let here = |before: &&Finding| (&before.file, before.line) == (&finding.file, finding.line);
            if !once.iter().rev().take_while(here).any(|before| *before == finding) {
                once.push(finding);
            }
        }
        self.findings = once;
        self.not_evaluated.sort();
        self.not_evaluated.dedup();
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        (self.errors, self.warnings, self.audits) = (count(Severity::Error), count(Severity::Warning), count(Severity::Audit));
    }

    /// The output for people.
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = self.findings.iter().map(Finding::line).collect();
        let told = self.not_evaluated.iter().filter(|passed| !passed.usual);
        lines.extend(told.map(|SkippedCheck { what, why, .. }| format!("not evaluated: {what}: {why}")));
        lines.extend(self.unplanned.iter().map(|SkippedCheck { what, why, .. }| format!("no plan: {what}: {why}")));
        lines.extend(self.not_ready.iter().map(|SkippedCheck { what, why, .. }| format!("not ready: {what}: {why}")));
        if self.unevaluated_objects > 0 {
            let objects = counted(self.unevaluated_objects, "object");
            lines.push(format!("not evaluated: the rules on {objects} with errors: fix the errors and run the command again"));
        }
        lines.extend(self.skipped.clone());
        let counts = [counted(self.errors, "error"), counted(self.warnings, "warning"), counted(self.audits, "audit finding")].join(", ");
        let others = if self.others > 0 { format!(" ({} of other kinds skipped)", self.others) } else { String::new() };
        lines.push(format!("{}{others}: {counts}", counted(self.objects, "object")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;

    fn finding(file: &str, line: u64, severity: Severity, field: &str) -> Finding {
        let object = ObjectName { kind: "A".into(), namespace: "n".into(), name: "a".into() };
        Finding { severity, file: file.into(), line, object, field: field.into(), message: "is\nwrong".into() }
    }

    #[test]
    fn findings_are_told_once_by_file_and_line() {
        let mut report = Report { objects: 1, unevaluated_objects: 1, ..Report::default() };
        report.findings = vec![
            finding("b", 1, Severity::Warning, "x"),
            finding("a", 10, Severity::Error, "x.y"),
            finding("a", 9, Severity::Audit, ""),
            finding("a", 10, Severity::Error, "x.z"),
            finding("a", 10, Severity::Error, "x.y"),
        ];
        report.settle();
        assert_eq!(
            strip_str(&report.text()).to_string(),
            "a:9: audit: A a: is wrong\na:10: A a: x.y: is wrong\na:10: A a: x.z: is wrong\nb:1: warning: A a: x: is wrong\nnot evaluated: the rules on 1 object with errors: fix the errors and run the command again\n1 object: 2 errors, 1 warning, 1 audit finding"
        );
    }
}
