//! The shipped rules. Each is a ValidationRule that the leader creates if it is missing and that users may change: unchanged ones are
//! updated by newer hosts.

use super::ome_keys::{self, Practice};
use kube::ResourceExt;
use pointsman_crds::policy::rule::{ValidationRule, ValidationRuleSpec};
use pointsman_sandbox::digest::Digest;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, ops::Deref, sync::LazyLock};

/// The annotation with the digest of the shipped spec: while it matches the spec, the rule is unchanged.
const SHIPPED_DIGEST: &str = "policy.pointsman.dev/brought";

/// The annotation with the purpose of the rule.
const ABOUT: &str = "policy.pointsman.dev/about";

/// The files with the rules, by type.
const FILES: [&str; 3] =
    [include_str!("shipped/guardrails.yaml"), include_str!("shipped/lookups.yaml"), include_str!("shipped/practices.yaml")];

/// A shipped rule.
#[derive(Clone, Debug)]
pub struct Shipped(ValidationRule);

impl Deref for Shipped {
    type Target = ValidationRule;

    fn deref(&self) -> &ValidationRule {
        &self.0
    }
}

/// A file of rules, with texts that several of its expressions share: a reference has the form `${its name}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    texts: BTreeMap<String, String>,
    rules: Vec<RuleManifest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleManifest {
    name: String,
    about: String,
    /// The formats of annotations that it checks in addition to its own validations.
    annotations: Option<Practice>,
    spec: Value,
}

/// All shipped rules, sorted by name. A test checks that each of them can be parsed and compiled.
pub fn all() -> &'static [Shipped] {
    static ALL: LazyLock<Vec<Shipped>> = LazyLock::new(|| {
        let [labels, annotations] = ome_keys::keys_by_prefix();
        let generated = BTreeMap::from([("labels-by-prefix".to_owned(), labels), ("annotations-by-prefix".to_owned(), annotations)]);
        let files = FILES.iter().filter_map(|file| serde_saphyr::from_str::<RuleFile>(file).ok());
        let rules = files.flat_map(|RuleFile { mut texts, rules }| {
            texts.extend(generated.clone());
            rules.into_iter().filter_map(|manifest| Shipped::from_manifest(manifest, &texts).ok()).collect::<Vec<_>>()
        });
        let mut all: Vec<Shipped> = rules.collect();
        all.sort_by_key(|rule| rule.name_any());
        all
    });
    &ALL
}

/// Replaces the references in all strings of a document.
fn fill(value: &mut Value, texts: &BTreeMap<String, String>) {
    match value {
        Value::String(text) if text.contains("${") => {
            for (name, common) in texts {
                *text = text.replace(&format!("${{{name}}}"), common);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, texts)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, texts)),
        _ => {}
    }
}

/// The shipped rule with this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    all().iter().find(|rule| rule.name_any() == name)
}

impl Shipped {
    fn from_manifest(manifest: RuleManifest, texts: &BTreeMap<String, String>) -> serde_json::Result<Self> {
        let RuleManifest { name, about, annotations, mut spec } = manifest;
        fill(&mut spec, texts);
        if let (Some(_), Some(fields)) = (annotations, spec.as_object_mut()) {
            fields.entry("validations").or_insert_with(|| Value::Array(Vec::new()));
        }
        let mut spec: ValidationRuleSpec = serde_json::from_value(spec)?;
        let (variables, validations): (Vec<_>, Vec<_>) = annotations.map(Practice::checks).unwrap_or_default().into_iter().unzip();
        spec.variables.extend(variables);
        spec.validations.extend(validations);
        let mut rule = ValidationRule::new(&name, spec);
        let annotations = BTreeMap::from([(SHIPPED_DIGEST.to_owned(), digest(&rule.spec)), (ABOUT.to_owned(), about)]);
        rule.metadata.annotations = Some(annotations);
        rule.metadata.labels = Some([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())].into());
        Ok(Self(rule))
    }

    /// Whether it must be written: it is missing, or it is an unchanged rule of another host version.
    pub fn differs(&self, there: Option<&ValidationRule>) -> bool {
        let Some(there) = there else { return true };
        let as_brought = |enabled| digest(&ValidationRuleSpec { enabled, ..there.spec.clone() });
        let brought = there.annotations().get(SHIPPED_DIGEST);
        let unchanged = [true, false].iter().any(|enabled| brought == Some(&as_brought(*enabled)));
        let spec = self.instead_of(there).spec;
        // A CRD without lookups drops them: that isn't a user's change.
        let cut = there.spec == ValidationRuleSpec { lookups: Vec::new(), ..spec.clone() };
        (unchanged || cut) && there.spec != spec
    }

    /// The rule to write over an existing one: a rule that was only enabled or disabled still gets updates.
    pub fn instead_of(&self, there: &ValidationRule) -> ValidationRule {
        let mut rule = self.0.clone();
        rule.spec.enabled = there.spec.enabled;
        rule
    }
}

fn digest(spec: &ValidationRuleSpec) -> String {
    Digest::of_value(spec).map(|digest| digest.to_string()).unwrap_or_default()
}
