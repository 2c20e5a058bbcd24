//! Decides on a pod's template.

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

/// The question. Its parts are shared by many decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The subject.
    pub subject: Digested<Subject>,
    /// The pod's role.
    pub role: Role,
    /// For a leader or a worker: the role of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_role: Option<Role>,
    /// The layers in order of precedence, the lowest first.
    pub layers: Digested<Vec<Layer>>,
    /// The host's frame: `metadata` and `spec`.
    pub template: Digested<Value>,
    /// The names of the layers that only administrators write. Plugins don't get them; rules use them to determine who requested a field.
    #[serde(skip)]
    pub admin_layers: Vec<String>,
    /// Additional facts, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub facts: Digested<Vec<Fact>>,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

impl Inputs {
    /// The request to one plugin, with the template as the plugins before it have left it.
    pub fn request<'a>(&'a self, template: &'a str) -> RequestRef<'a> {
        let Self { subject, role, group_role, layers, template: _, admin_layers: _, facts, now } = self;
        RequestRef { subject, role: *role, group_role: *group_role, layers, template, now: *now, facts }
    }
}

/// The template after all plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Templated {
    /// The template as JSON: a `Value` would take ten times the memory, and decisions are cached.
    #[serde(serialize_with = "image::json::serialize")]
    pub template: String,
    /// The operations that were applied, in order.
    pub steps: Vec<Step>,
    /// The reasons, each with the plugin that gave it.
    pub reasons: Vec<(String, Reason)>,
}

/// An operation that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The plugin that requested it.
    pub plugin: String,
    /// The operation.
    pub operation: Operation,
}

/// The path of a field other than labels, annotations and the pod's spec: only the host sets a name, a namespace and owners.
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
    /// Builds a pod's template from the layers.
    pub fn template(&self, inputs: &Inputs) -> Result<Arc<Decision<Templated>>, Undecided> {
        self.decide(inputs)
    }

    /// Calls one plugin with the current template.
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
            // Not the plugin's fault: usually a user requested it.
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
