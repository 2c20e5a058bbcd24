//! Golden cases of plugins in YAML: inputs with the expected answers.

use super::ask::Question;
use crate::cli::golden;
use anyhow::{Result, anyhow, bail};
use pointsman_core::point::name;
use pointsman_crds::policy::plugin::PolicyPoint;
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;
use std::fmt;

/// The inputs and the expected result.
#[derive(Debug)]
pub(super) struct PluginCase {
    pub(super) name: String,
    /// The configuration, as JSON.
    pub(super) config: String,
    pub(super) question: Question,
    pub(super) expected: Option<Expected>,
    /// File and line, for people.
    pub(super) place: String,
}

/// The expected result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected {
    /// This answer, in the form of its point.
    Answer(Value),
    /// A failure whose message contains this text.
    Error(String),
}

impl golden::Case for PluginCase {
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

fn case(written: WrittenCase, place: String) -> Result<PluginCase> {
    let WrittenCase { name, point, config, request, answer, error } = written;
    let name = name.ok_or_else(|| anyhow!("the case has no name: add `name: what it shows`"))?;
    let lacks = |field: &str| anyhow!("the case {name:?} has no {field}");
    let point = point.ok_or_else(|| lacks("point"))?;
    let question = match request.ok_or_else(|| lacks("request"))? {
        RequestField::Read(question) => question,
        RequestField::Unread(value) => Question::parse(point, value).map_err(|error| anyhow!("request: {error}"))?,
    };
    let answer = answer.map(|answer| question.normal(answer)).transpose();
    let expected = match (answer.map_err(|error| anyhow!("the case {name:?}: answer: {error}"))?, error) {
        (Some(_), Some(_)) => bail!("the case {name:?} has both an answer and an error: remove one"),
        (Some(answer), None) => Some(Expected::Answer(answer)),
        (None, Some(error)) if error.trim().is_empty() => bail!("the case {name:?} has an empty error: write a part of the sentence"),
        (None, error) => error.map(Expected::Error),
    };
    let config = config.map_or_else(|| "{}".to_owned(), |config| config.to_string());
    Ok(PluginCase { name, config, question, expected, place })
}

/// A case as written.
#[derive(Default)]
pub(super) struct WrittenCase {
    name: Option<String>,
    point: Option<PolicyPoint>,
    config: Option<Value>,
    request: Option<RequestField>,
    answer: Option<Value>,
    error: Option<String>,
}

/// A request: parsed at once if the point precedes it, so that errors have its line.
enum RequestField {
    Read(Question),
    Unread(Value),
}

const FIELDS: &[&str] = &["name", "point", "config", "request", "answer", "error"];

impl WrittenCase {
    fn from_written<'de, M: MapAccess<'de>>(mut map: M) -> Result<Self, M::Error> {
        let mut written = Self::default();
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "name" => written.name = Some(map.next_value()?),
                "point" => written.point = Some(map.next_value::<Named>()?.0),
                "config" => written.config = Some(map.next_value()?),
                "request" => {
                    written.request = Some(match written.point {
                        Some(point) => RequestField::Read(Question::read(point, &mut map)?),
                        None => RequestField::Unread(map.next_value()?),
                    });
                }
                "answer" => written.answer = Some(map.next_value()?),
                "error" => written.error = Some(map.next_value()?),
                other => {
                    map.next_value::<IgnoredAny>().ok();
                    return Err(de::Error::unknown_field(other, FIELDS));
                }
            }
        }
        Ok(written)
    }
}

/// A policy point by its name.
struct Named(PolicyPoint);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        super::point(&String::deserialize(from)?).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for WrittenCase {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = WrittenCase;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a case: an object with name, point, request, and answer or error")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<WrittenCase, M::Error> {
                WrittenCase::from_written(map)
            }
        }
        from.deserialize_map(Map)
    }
}

impl PluginCase {
    pub(super) fn point(&self) -> &'static str {
        name(self.question.point())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn parsed(text: &str) -> Result<Vec<PluginCase>, String> {
        golden::parse(text, Path::new("cases.yaml")).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        parsed(text).unwrap_err()
    }

    const SCORES: &str = "name: a\npoint: scheduling-scoring\nrequest: {question: endpoint-pick, columns: 1, matrix: [1, null]}\n";

    #[test]
    fn a_document_is_a_case_or_a_list_of_cases() {
        let text = format!(
            "# A remark.\n{SCORES}answer: [1.0, null]\n---\n- name: b\n  point: scheduling-scoring\n  request: {{question: endpoint-pick}}\n  error: no\n\n- answer: []\n  request: {{question: endpoint-pick}}\n  point: scheduling-scoring\n  name: c\n"
        );
        let cases = parsed(&text).unwrap();
        let seen: Vec<_> = cases.iter().map(|case| (case.name.as_str(), case.place.as_str())).collect();
        assert_eq!(seen, [("a", "cases.yaml:2"), ("b", "cases.yaml:7"), ("c", "cases.yaml:12")]);
        assert_eq!(cases[0].expected, Some(Expected::Answer(json!([1, null]))));
        assert_eq!(cases[1].expected, Some(Expected::Error("no".into())));
        assert_eq!(cases[2].config, "{}");
    }

    #[test]
    fn json_is_yaml_too() {
        let case = r#"[{"name": "a", "point": "scheduling-scoring", "request": {"question": "endpoint-pick"}, "answer": []}]"#;
        assert_eq!(parsed(case).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let cases = [
            ("name: [", "cases.yaml:1: "),
            (
                "name: a\npoint: runtime\n",
                "cases.yaml:2: there is no policy point \"runtime\"; there are runtime-selection, pod-templating",
            ),
            ("name: a\npiont: x\n", "unknown field `piont`"),
            ("- point: pod-templating\n", "cases.yaml:1: the case has no name"),
            ("\n- name: a\n", "cases.yaml:2: the case \"a\" has no point"),
            ("name: a\npoint: pod-templating\n", "cases.yaml:1: the case \"a\" has no request"),
            ("name: a\npoint: runtime-selection\nrequest:\n  subject:\n    nmae: x\n", "cases.yaml:5: unknown field `nmae`"),
            ("name: a\npoint: runtime-selection\nrequest:\n  subject: {}\n", "missing field `model`"),
            ("request: {subject: {}}\nname: a\npoint: runtime-selection\n", "cases.yaml:1: request: missing field `model`"),
            ("just text\n", "a case or a list of cases"),
        ];
        for (text, says) in cases {
            let said = refused(text);
            assert!(said.starts_with("cases.yaml") && said.contains(says) && !said.contains('\n'), "{text:?}: {said}");
        }
        assert!(refused(&format!("{SCORES}answer: {{}}\n")).contains("answer: "));
        assert!(refused(&format!("{SCORES}answer: []\nerror: x\n")).contains("both an answer and an error"));
        assert!(refused(&format!("{SCORES}error: ''\n")).contains("an empty error"));
    }
}
