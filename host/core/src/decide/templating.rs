//! What a pod looks like.

use super::{
    Decision, Pinned, Undecided,
    cached::{CachedQuestion, marker},
    chain::Fault,
};
use crate::{decide::member::Member, patch, pod_template};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    call::CallError,
    digest::{Digest, Digested},
    limits::{LARGEST_TEMPLATE, MAX_OPERATIONS},
    point::{
        Fact, Reason, Role, Subject, image,
        templating::{Layer, Operation, RequestRef},
    },
    text::printable_line,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The question, of parts that many decisions share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// What is to be served.
    pub subject: Digested<Subject>,
    /// What the pod does for it.
    pub role: Role,
    /// For a leader or a worker: the role of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_role: Option<Role>,
    /// The layers, the weakest first.
    pub layers: Digested<Vec<Layer>>,
    /// The host's frame: `metadata` and `spec`.
    pub template: Digested<Value>,
    /// The names of the layers that only administrators write. No plugin is told; rules read who requested a field.
    #[serde(skip)]
    pub admin_layers: Vec<String>,
    /// What is told beside these fields, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub facts: Digested<Vec<Fact>>,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

impl Inputs {
    /// As one plugin is asked, given what those before it have made of the template.
    pub fn request<'a>(&'a self, template: &'a str) -> RequestRef<'a> {
        let Self { subject, role, group_role, layers, template: _, admin_layers: _, facts, now } = self;
        RequestRef { subject, role: *role, group_role: *group_role, layers, template, now: *now, facts }
    }
}

/// What all plugins together made of the template.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Templated {
    /// The template as JSON: as a value it would take ten times the memory, and decisions are kept.
    #[serde(serialize_with = "image::json::serialize")]
    pub template: String,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// Why, each with the plugin that says so.
    pub reasons: Vec<(String, Reason)>,
}

/// One operation that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The plugin that wanted it.
    pub plugin: String,
    /// What was done.
    pub operation: Operation,
}

/// What a template has beside labels, annotations and the pod's spec: a name, a namespace and owners are the host's to give.
fn foreign(template: &Value) -> Option<String> {
    let outside = |value: &Value, known: [&str; 2]| value.as_object()?.keys().find(|key| !known.contains(&key.as_str())).cloned();
    let of_metadata = || outside(&template["metadata"], ["labels", "annotations"]).map(|key| format!("/metadata/{key}"));
    outside(template, ["metadata", "spec"]).map(|key| format!("/{key}")).or_else(of_metadata)
}

impl CachedQuestion for Inputs {
    const POINT: PolicyPoint = PolicyPoint::PodTemplating;
    type Answer = Templated;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn now(&self) -> Option<u64> {
        self.now
    }

    #[deny(unused_variables)]
    fn digest(&self) -> Digest {
        let Self { subject, role, group_role, layers, template, admin_layers: _, facts, now: _ } = self;
        let roles = marker(&[*role as u8, group_role.map_or(u8::MAX, |role| role as u8)]);
        Digest::of_all([subject.digest(), layers.digest(), template.digest(), &roles, facts.digest()])
    }

    fn answer(&self, pinned: &Pinned<'_>, chain: &[Arc<Member>]) -> Result<Templated, Fault> {
        let mut answer = Templated { template: self.template.to_string(), ..Templated::default() };
        for (at, member) in chain.iter().enumerate() {
            pinned.lay(member, self, &mut answer).map_err(|error| Fault { at, error })?;
        }
        Ok(answer)
    }
}

impl Pinned<'_> {
    /// Turns the layers into a pod's template.
    pub fn template(&self, inputs: &Inputs) -> Result<Arc<Decision<Templated>>, Undecided> {
        self.decide(inputs)
    }

    /// Lets one plugin go on with the template.
    fn lay(&self, member: &Member, inputs: &Inputs, so_far: &mut Templated) -> Result<(), CallError> {
        let now = inputs.now_for(member);
        let (template, answer) = self.call(Inputs::POINT, member, inputs.subject(), |plugin| {
            let (answer, spent) = plugin.template(RequestRef { now, ..inputs.request(&so_far.template) })?;
            let number = answer.operations.len();
            if number > MAX_OPERATIONS {
                return Err(CallError::TooLarge(format!("it has {number} operations; the limit is {MAX_OPERATIONS}")));
            }
            let mut template: Value = serde_json::from_str(&so_far.template).unwrap_or_default();
            for operation in &answer.operations {
                let named = operation.layer == "plugin" || inputs.layers.iter().any(|layer| layer.name == operation.layer);
                if !named {
                    let known: Vec<_> = inputs.layers.iter().map(|layer| layer.name.as_str()).collect();
                    let sentence = format!("{:?} is not a layer of the question: use {} or plugin", operation.layer, known.join(", "));
                    return Err(CallError::Nonsense(printable_line(&sentence)));
                }
                patch::apply(&mut template, operation)
                    .map_err(|error| CallError::Nonsense(printable_line(&format!("{} {error}", operation.path))))?;
            }
            if let Some(foreign) = foreign(&template) {
                return Err(CallError::Nonsense(printable_line(&format!("a policy may not set {foreign}"))));
            }
            // No fault of the plugin's: mostly a user says so.
            if let Some(flaw) = pod_template::flaw(&template) {
                return Err(CallError::Failed(printable_line(&format!("the layers don't form a valid pod template: {flaw}"))));
            }
            let template = template.to_string();
            let size = template.len();
            if size > LARGEST_TEMPLATE {
                return Err(CallError::TooLarge(format!("its template has {size} bytes; the limit is {LARGEST_TEMPLATE}")));
            }
            Ok(((template, answer), spent))
        })?;
        so_far.template = template;
        let plugin = || member.name().to_owned();
        so_far.steps.extend(answer.operations.into_iter().map(|operation| Step { plugin: plugin(), operation }));
        so_far.reasons.extend(answer.reasons.into_iter().map(|reason| (plugin(), reason)));
        Ok(())
    }
}
