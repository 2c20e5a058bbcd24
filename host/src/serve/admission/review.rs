//! From the API server's question to the answer. Nothing here awaits, logs or calls the API, and nothing is written: a dry run is no
//! other request.

use super::{
    kinds,
    verdict::{AdmissionVerdict, cut},
};
use k8s_openapi::jiff::Timestamp;
use pointsman_core::{
    claims::Claims,
    objects::strings,
    question::entries,
    resource::{Resource, VALIDATION_RULE},
    rules::visible,
    rules::{
        Rules, fields,
        judge::RuleInput,
        lookups::LookupContext,
        rule::{Rule, bind},
    },
    structural, usage,
    world::{Labels, ObjectKey, Surroundings},
};
use pointsman_crds::policy::rule::{Operation, RuleStage, ValidationRuleSpec};
use pointsman_sandbox::{cache::Cache, engine::Lane, evaluator::Evaluator, limits::SUMS_WITHIN_AT_ADMISSION, point::Subject};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Why a question can't be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is no JSON, or none of an AdmissionReview.
    #[error("the body isn't an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("the body is {0}: send an AdmissionReview of admission.k8s.io/v1")]
    Kind(String),
    /// Nothing is asked.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// What is known where rules are asked.
#[derive(Debug)]
pub struct ReviewContext<'a> {
    /// The rules of the active set.
    pub rules: &'a Rules,
    /// What compiles a rule that is new.
    pub evaluator: Option<&'a Evaluator>,
    /// The labels of the object's namespace. One that was made a moment ago may not be known yet: it counts as one without labels, as
    /// it does for the controller, which asks again when it sees it.
    pub namespace_labels: Arc<Labels>,
    /// What rules may look up beside the object.
    pub surroundings: Surroundings,
    /// What was found out before.
    pub memo: Option<&'a Cache>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Map<String, Value>>,
}

/// What the API server asks.
#[derive(Debug)]
pub struct Request {
    /// What the answer refers to.
    pub uid: String,
    /// Of what kind of ours the object is, by its name and place; none for others and for what is below an object, such as its status.
    key: Option<ObjectKey>,
    /// What is done; none where no rule can be about it, as with CONNECT.
    operation: Option<Operation>,
    object: Option<Value>,
    old: Option<Value>,
    /// All the rest.
    rest: Value,
}

impl Request {
    /// Reads a question.
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let Review { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(ReviewError::Kind(format!("{kind} of {api_version}")));
        }
        let mut request = request.ok_or(ReviewError::NoRequest)?;
        let mut take = |name: &str| request.remove(name).filter(|value| !value.is_null());
        let (object, old) = (take("object"), take("oldObject"));
        // ValidatingAdmissionPolicy doesn't show it to rules.
        let uid = take("uid").as_ref().and_then(Value::as_str).map(str::to_owned).ok_or(ReviewError::NoRequest)?;
        let rest = Value::Object(request);
        let operation = Operation::deserialize(&rest["operation"]).ok();
        let key = key(&rest, object.as_ref().or(old.as_ref()));
        Ok(Self { uid, key, operation, object, old, rest })
    }

    /// What is done, for those who count.
    pub fn operation(&self) -> &'static str {
        match self.operation {
            Some(Operation::Create) => "CREATE",
            Some(Operation::Update) => "UPDATE",
            Some(Operation::Delete) => "DELETE",
            None => "CONNECT",
        }
    }

    /// When the object was made, by what it was before: what is about to be made has no age yet, whatever was called so a moment ago.
    pub fn created(&self) -> Option<Timestamp> {
        self.old.as_ref()?["metadata"]["creationTimestamp"].as_str()?.parse().ok()
    }

    /// The object, if it is of a kind of ours.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.key.as_ref()
    }

    /// The namespace of the object; none where it is in none, or of no kind of ours.
    pub fn namespace(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// Whether no door has a word to say about it: it is a service that the controller leaves alone, or the object is being deleted, and
    /// what keeps it from going (a finalizer) must be able to let go, whatever rule has come since.
    pub fn is_let_through(&self, claims: &Claims) -> bool {
        let Some(key) = &self.key else { return true };
        let object = self.object.as_ref().or(self.old.as_ref());
        // As it was: nobody can make that up.
        let is_deleted = || self.old.as_ref().is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null());
        key.resource.is_subject() && !claims.contains(key)
            || object.is_some_and(|object| kinds::is_left_alone(key.resource, object))
            || self.operation == Some(Operation::Update) && is_deleted()
    }

    /// The object as it is to be and as it was, as rules see them at every door.
    fn seen(&self, key: &ObjectKey) -> (Option<Value>, Option<Value>) {
        let ObjectKey { resource, namespace, name } = key;
        let seen = |content: &Value| visible::object(&resource.api_version(), resource.kind, namespace, name, content);
        (self.object.as_ref().map(seen), self.old.as_ref().map(seen))
    }
}

fn key(request: &Value, object: Option<&Value>) -> Option<ObjectKey> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if text(&request["subResource"]).is_some() {
        return None;
    }
    let group = request["kind"]["group"].as_str().unwrap_or_default();
    let version = request["kind"]["version"].as_str().unwrap_or_default();
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let resource: &'static Resource = kinds::find(&api_version, request["kind"]["kind"].as_str()?)?;
    // A name that the API server makes up is in the object and not in the request, and of many that are deleted at once only the
    // objects tell theirs.
    let name = object.and_then(|object| text(&object["metadata"]["name"])).or_else(|| text(&request["name"]));
    let namespace = text(&request["namespace"]).or_else(|| object.and_then(|object| text(&object["metadata"]["namespace"])));
    Some(ObjectKey { resource, namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() })
}

/// Whether the object may be as it is to be, and what its user should know.
pub fn validate(request: &Request, known: &ReviewContext<'_>) -> AdmissionVerdict {
    let mut verdict = judge(request, known);
    verdict.warnings.extend(warnings(request, known).iter().map(|warning| cut(warning)));
    verdict
}

/// What its user should know beside what rules say.
fn warnings(request: &Request, known: &ReviewContext<'_>) -> Vec<String> {
    let Some(key) = &request.key else { return Vec::new() };
    let spec = |object: &Option<Value>| object.as_ref().map(|object| object["spec"].clone());
    match (request.operation, spec(&request.object)) {
        (Some(Operation::Delete), _) => usage::deletion_warning(key, &known.surroundings).into_iter().collect(),
        (Some(Operation::Create | Operation::Update), Some(after)) if spec(&request.old).as_ref() != Some(&after) => {
            usage::deprecation_warnings(key, &after, &known.surroundings)
        }
        _ => Vec::new(),
    }
}

fn judge(request: &Request, known: &ReviewContext<'_>) -> AdmissionVerdict {
    let (Some(key), Some(operation)) = (&request.key, request.operation) else { return AdmissionVerdict::default() };
    if *key.resource == VALIDATION_RULE {
        return compiles(request, key, known);
    }
    if !kinds::is_judged(key.resource) {
        return AdmissionVerdict::default();
    }
    let (object, old) = request.seen(key);
    // Nothing that a rule can see is changed: controllers write finalizers and owners on objects that a newer rule would refuse, and
    // an object that can't be deleted any more helps nobody.
    if operation == Operation::Update && object == old {
        return AdmissionVerdict::default();
    }
    let about = about(key, object.as_ref().or(old.as_ref()), &known.namespace_labels);
    // As ValidatingAdmissionPolicy has it, what isn't there is null.
    let text = |value: Option<&Value>| Some(value.map_or_else(|| "null".into(), |value| value.to_string().into()));
    let mut root = |name: &str| match name {
        "object" => text(object.as_ref()),
        "oldObject" => text(old.as_ref()),
        "request" => text(Some(&request.rest)),
        "namespaceObject" => text(request.namespace().map(|name| visible::namespace(name, &*known.namespace_labels)).as_ref()),
        _ => None,
    };
    let around = LookupContext::new(&known.surroundings, known.memo, None, SUMS_WITHIN_AT_ADMISSION);
    let case = RuleInput {
        stage: RuleStage::Input,
        about: &about,
        operation: Some(operation),
        root: &mut root,
        around: Some(&around),
        lane: Lane::Admission,
    };
    AdmissionVerdict::from_judgement(&known.rules.judge(case))
}

fn about(key: &ObjectKey, object: Option<&Value>, namespace_labels: &Labels) -> Subject {
    let map = |name: &str| object.map(|object| entries(&strings(&object["metadata"][name]))).unwrap_or_default();
    Subject {
        group: key.resource.group.to_owned(),
        version: key.resource.version.to_owned(),
        kind: key.resource.kind.to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        labels: map("labels"),
        annotations: map("annotations"),
        namespace_labels: entries(namespace_labels),
    }
}

/// Whether the expressions of a ValidationRule can be evaluated: nowhere is a typo found sooner.
fn compiles(request: &Request, key: &ObjectKey, known: &ReviewContext<'_>) -> AdmissionVerdict {
    let Some(object) = &request.object else { return AdmissionVerdict::default() };
    let spec = &object["spec"];
    if request.operation == Some(Operation::Delete) || request.old.as_ref().is_some_and(|old| old["spec"] == *spec) {
        return AdmissionVerdict::default();
    }
    let spec = match ValidationRuleSpec::deserialize(spec) {
        Ok(spec) => spec,
        Err(error) => return AdmissionVerdict::invalid(format!("spec: {error}")),
    };
    let Some(evaluator) = known.evaluator else {
        return AdmissionVerdict::warning("the rule hasn't been compiled, because there is no evaluator: see its condition Compiled");
    };
    match Rule::load(bind(&key.name, &spec, None), evaluator, fields::shapes()) {
        Ok(_) => AdmissionVerdict::default(),
        Err(error) if error.passing() => AdmissionVerdict::warning(&format!("{error}; see the rule's condition Compiled")),
        Err(error) => AdmissionVerdict::invalid(error.to_string()),
    }
}

/// Fills in the defaults of our schemas that the object lacks.
pub fn default(request: &Request) -> AdmissionVerdict {
    let (Some(key), Some(Operation::Create | Operation::Update)) = (&request.key, request.operation) else {
        return AdmissionVerdict::default();
    };
    let Some(Value::Object(object)) = &request.object else { return AdmissionVerdict::default() };
    let (now, old) = request.seen(key);
    // Else the next finalizer on an object from before would be a change of it, and would be judged.
    if request.operation == Some(Operation::Update) && now == old {
        return AdmissionVerdict::default();
    }
    let Some(kind) = structural::kinds().get(&(key.resource.api_version(), key.resource.kind.to_owned())) else {
        return AdmissionVerdict::default();
    };
    let whole = kind.defaulted(object.clone());
    let mut patch = Vec::new();
    if let (Some(given), Some(whole)) = (object.get("spec"), whole.get("spec")) {
        added(given, whole, "/spec", &mut patch);
    }
    AdmissionVerdict { patch, ..AdmissionVerdict::default() }
}

/// The steps that add to `given` what only `whole` has. What only `given` has stays: whether a field is known is for the CRD to say that is
/// installed.
fn added(given: &Value, whole: &Value, path: &str, patch: &mut Vec<Value>) {
    match (given, whole) {
        (Value::Object(given), Value::Object(whole)) => {
            for (name, value) in whole {
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                match given.get(name) {
                    Some(given) if !given.is_null() || value.is_null() => added(given, value, &path, patch),
                    _ => patch.push(serde_json::json!({"op": "add", "path": path, "value": value})),
                }
            }
        }
        (Value::Array(given), Value::Array(whole)) => {
            for (number, (given, whole)) in given.iter().zip(whole).enumerate() {
                added(given, whole, &format!("{path}/{number}"), patch);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
