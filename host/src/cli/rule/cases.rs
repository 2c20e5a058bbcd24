//! Golden cases of rules in YAML: objects with the expected verdicts.

use crate::cli::golden;
use anyhow::{Result, anyhow, bail};
use pointsman_core::rules::lookups::LOOKUPS;
use pointsman_crds::policy::rule::Operation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// The inputs of a rule, and the expected verdict.
#[derive(Debug)]
pub(super) struct RuleCase {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) known: CaseInputs,
    pub(super) expected: RuleVerdict,
    /// A part of the expected message.
    pub(super) message: Option<String>,
    /// File and line, for people.
    pub(super) place: String,
}

/// The inputs of a rule.
#[derive(Debug, Default)]
pub(super) struct CaseInputs {
    /// The values of roots, by name.
    pub(super) roots: BTreeMap<&'static str, Value>,
    /// The data of the ConfigMap.
    pub(super) params: Option<BTreeMap<String, String>>,
    pub(super) operation: Option<Operation>,
}

/// The verdict of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RuleVerdict {
    /// A validation is false, and the object is rejected.
    Deny,
    /// A validation is false, and the user gets a warning.
    Warn,
    /// A validation is false, and the audit log gets an entry.
    Audit,
    /// All validations are true.
    Pass,
    /// The rule doesn't apply to the object.
    NotMatched,
    /// An expression can't be evaluated.
    Failed,
}

impl fmt::Display for RuleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl golden::Case for RuleCase {
    type Written = WrittenCase;

    fn from_written(written: WrittenCase, place: String) -> Result<Self> {
        case(written, place)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &str {
        &self.place
    }
}

fn case(written: WrittenCase, place: String) -> Result<RuleCase> {
    let name = written.name.ok_or_else(|| anyhow!("the case has no name: add `name: what it shows`"))?;
    let lacks = |field: &str| anyhow!("the case {name:?} has no {field}");
    let rule = written.rule.ok_or_else(|| lacks("rule"))?;
    let expected = written.expect.ok_or_else(|| lacks("expect"))?;
    if written.object.is_none() && written.operation != Some(Operation::Delete) {
        return Err(lacks("object"));
    }
    if written.message.as_ref().is_some_and(|message| message.trim().is_empty()) {
        bail!("the case {name:?} has an empty message: write a part of the sentence");
    }
    if written.message.is_some() && [RuleVerdict::Pass, RuleVerdict::NotMatched].contains(&expected) {
        bail!("the case {name:?} expects {expected} and a message: a rule has no message then");
    }
    let roots = [
        ("object", written.object),
        ("oldObject", written.old_object),
        ("request", written.request),
        ("namespaceObject", written.namespace_object),
        ("subject", written.subject),
        ("layers", written.layers),
        ("added", written.added),
        (LOOKUPS, written.lookups),
    ];
    let roots = roots.into_iter().filter_map(|(root, value)| Some((root, value?))).collect();
    let known = CaseInputs { roots, params: written.params, operation: written.operation };
    Ok(RuleCase { name, rule, known, expected, message: written.message, place })
}

/// A case as written.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WrittenCase {
    name: Option<String>,
    rule: Option<String>,
    object: Option<Value>,
    old_object: Option<Value>,
    request: Option<Value>,
    namespace_object: Option<Value>,
    subject: Option<Value>,
    layers: Option<Value>,
    added: Option<Value>,
    lookups: Option<Value>,
    params: Option<BTreeMap<String, String>>,
    operation: Option<Operation>,
    expect: Option<RuleVerdict>,
    message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn parsed(text: &str) -> Result<Vec<RuleCase>, String> {
        golden::parse(text, Path::new("cases.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_document_is_a_case_or_a_list_of_cases() {
        let text = "# A remark.\nname: a\nrule: r\nobject: {kind: A}\nexpect: Deny\nmessage: no\n---\n- name: b\n  rule: r\n  operation: DELETE\n  oldObject: {}\n  params: {k: v}\n  expect: NotMatched\n";
        let cases = parsed(text).unwrap();
        let seen: Vec<_> = cases.iter().map(|case| (case.name.as_str(), case.place.as_str(), case.expected)).collect();
        assert_eq!(seen, [("a", "cases.yaml:2", RuleVerdict::Deny), ("b", "cases.yaml:8", RuleVerdict::NotMatched)]);
        assert_eq!(cases[0].known.roots["object"], json!({"kind": "A"}));
        assert_eq!(cases[1].known.operation, Some(Operation::Delete));
        assert_eq!(cases[1].known.params.as_ref().unwrap()["k"], "v");
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let cases = [
            ("name: [", "cases.yaml:1: "),
            ("- rule: r\n", "cases.yaml:1: the case has no name"),
            ("\n- name: a\n", "cases.yaml:2: the case \"a\" has no rule"),
            ("name: a\nrule: r\n", "has no expect"),
            ("name: a\nrule: r\nexpect: Pass\n", "has no object"),
            ("name: a\nrule: r\nexpect: Maybe\n", "unknown variant `Maybe`"),
            ("name: a\nrlue: r\n", "unknown field `rlue`"),
            ("name: a\nrule: r\nexpect: Deny\nobject: {}\nmessage: ''\n", "an empty message"),
            ("name: a\nrule: r\nexpect: Pass\nobject: {}\nmessage: x\n", "expects Pass and a message"),
            ("just text\n", "a case or a list of cases"),
        ];
        for (text, says) in cases {
            let said = parsed(text).unwrap_err();
            assert!(said.starts_with("cases.yaml") && said.contains(says) && !said.contains('\n'), "{text:?}: {said}");
        }
    }
}
