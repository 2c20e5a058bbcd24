//! The rules that the host brings. Each is a ValidationRule that the leader makes where it is missing, and anybody may change: what nobody has
//! changed becomes that of a newer host.

use kube::ResourceExt;
use pointsman_crds::policy::rule::{ValidationRule, ValidationRuleSpec};
use pointsman_sandbox::digest::Digest;
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Deref, sync::LazyLock};

/// The annotation with the digest of the spec that a host has brought: as long as the spec has it, nobody has changed the rule.
const BROUGHT: &str = "policy.pointsman.dev/brought";

/// The annotation that says what the rule is for.
const ABOUT: &str = "policy.pointsman.dev/about";

/// The files, each with rules of one sort.
const FILES: [&str; 3] =
    [include_str!("shipped/guardrails.yaml"), include_str!("shipped/lookups.yaml"), include_str!("shipped/practices.yaml")];

/// A rule that the host brings.
#[derive(Clone, Debug)]
pub struct Shipped(ValidationRule);

impl Deref for Shipped {
    type Target = ValidationRule;

    fn deref(&self) -> &ValidationRule {
        &self.0
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    about: String,
    spec: ValidationRuleSpec,
}

/// All of them, in the order of their names. That each can be read and compiled is for a test to say.
pub fn all() -> &'static [Shipped] {
    static ALL: LazyLock<Vec<Shipped>> = LazyLock::new(|| {
        let written = FILES.iter().flat_map(|file| serde_saphyr::from_str::<Vec<Written>>(file).unwrap_or_default());
        let mut all: Vec<Shipped> = written.map(Shipped::of).collect();
        all.sort_by_key(|rule| rule.name_any());
        all
    });
    &ALL
}

/// The one of a name.
pub fn named(name: &str) -> Option<&'static Shipped> {
    all().iter().find(|rule| rule.name_any() == name)
}

impl Shipped {
    fn of(written: Written) -> Self {
        let mut rule = ValidationRule::new(&written.name, written.spec);
        let annotations = BTreeMap::from([(BROUGHT.to_owned(), digest(&rule.spec)), (ABOUT.to_owned(), written.about)]);
        rule.metadata.annotations = Some(annotations);
        rule.metadata.labels = Some([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())].into());
        Self(rule)
    }

    /// Whether it is to be written: nobody has it, or it is that of another host and nobody has changed it.
    pub fn differs(&self, there: Option<&ValidationRule>) -> bool {
        let Some(there) = there else { return true };
        let unchanged = there.annotations().get(BROUGHT) == Some(&digest(&there.spec));
        // A CRD from before there were lookups takes them away, and nobody else has done so.
        let cut = there.spec == ValidationRuleSpec { lookups: Vec::new(), ..self.0.spec.clone() };
        (unchanged || cut) && there.spec != self.0.spec
    }
}

fn digest(spec: &ValidationRuleSpec) -> String {
    Digest::of_value(spec).map(|digest| digest.to_string()).unwrap_or_default()
}
