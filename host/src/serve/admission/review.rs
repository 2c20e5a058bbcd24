//! Computes the response to an AdmissionReview. Nothing here awaits, logs, calls the API or writes, so a dry run is like any other request.

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

/// Why a request can't be handled.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It isn't the JSON of an AdmissionReview.
    #[error("the body isn't an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It is another kind of object.
    #[error("the body is {0}: send an AdmissionReview of admission.k8s.io/v1")]
    Kind(String),
    /// It has no request.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// The state that the judgement needs.
#[derive(Debug)]
pub struct ReviewContext<'a> {
    /// The rules of the active set.
    pub rules: &'a Rules,
    /// Compiles a new rule.
    pub evaluator: Option<&'a Evaluator>,
    /// The labels of the object's namespace. A namespace that was just created may not be known yet: it counts as one without labels, as in
    /// the controller, which plans again when it sees it.
    pub namespace_labels: Arc<Labels>,
    /// The other objects that rules may look up.
    pub surroundings: Surroundings,
    /// The cached results.
    pub memo: Option<&'a Cache>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Map<String, Value>>,
}

/// A request of the API server.
#[derive(Debug)]
pub struct Request {
    /// The uid, which the response repeats.
    pub uid: String,
    /// The object, if it is of a served kind; none for other kinds and for subresources such as its status.
    key: Option<ObjectKey>,
    /// The operation; none if no rule can apply to it, such as CONNECT.
    operation: Option<Operation>,
    object: Option<Value>,
    old: Option<Value>,
    /// The other fields.
    rest: Value,
}

impl Request {
    /// Parses a request.
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let Review { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(ReviewError::Kind(format!("{kind} of {api_version}")));
        }
        let mut request = request.ok_or(ReviewError::NoRequest)?;
        let mut take = |name: &str| request.remove(name).filter(|value| !value.is_null());
        let (object, old) = (take("object"), take("oldObject"));
        // Rules don't see the uid, as in ValidatingAdmissionPolicy.
        let uid = take("uid").as_ref().and_then(Value::as_str).map(str::to_owned).ok_or(ReviewError::NoRequest)?;
        let rest = Value::Object(request);
        let operation = Operation::deserialize(&rest["operation"]).ok();
        let key = key(&rest, object.as_ref().or(old.as_ref()));
        Ok(Self { uid, key, operation, object, old, rest })
    }

    /// The operation, for metrics.
    pub fn operation(&self) -> &'static str {
        match self.operation {
            Some(Operation::Create) => "CREATE",
            Some(Operation::Update) => "UPDATE",
            Some(Operation::Delete) => "DELETE",
            None => "CONNECT",
        }
    }

    /// When the object was created, by its old state. An object that is being created has no age yet, even if another one had its name.
    pub fn created(&self) -> Option<Timestamp> {
        self.old.as_ref()?["metadata"]["creationTimestamp"].as_str()?.parse().ok()
    }

    /// The object, if it is of a served kind.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.key.as_ref()
    }

    /// The namespace of the object; none if it is cluster-scoped or of no served kind.
    pub fn namespace(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// Whether no rule applies: the controller doesn't serve the subject, or the object is being deleted, and its finalizers must be
    /// removable regardless of new rules.
    pub fn is_let_through(&self, claims: &Claims) -> bool {
        let Some(key) = &self.key else { return true };
        let object = self.object.as_ref().or(self.old.as_ref());
        // The old state can't be forged.
        let is_deleted = || self.old.as_ref().is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null());
        key.resource.is_subject() && !claims.contains(key)
            || object.is_some_and(|object| kinds::is_left_alone(key.resource, object))
            || self.operation == Some(Operation::Update) && is_deleted()
    }

    /// The new and the old object, as rules see them at every entry point.
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
    // A name that the API server generates is in the object and not in the request, and if many objects are deleted at once, only the
    // objects have their names.
    let name = object.and_then(|object| text(&object["metadata"]["name"])).or_else(|| text(&request["name"]));
    let namespace = text(&request["namespace"]).or_else(|| object.and_then(|object| text(&object["metadata"]["namespace"])));
    Some(ObjectKey { resource, namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() })
}

/// Judges the object, and adds warnings for its user.
pub fn validate(request: &Request, known: &ReviewContext<'_>) -> AdmissionVerdict {
    let mut verdict = judge(request, known);
    verdict.warnings.extend(warnings(request, known).iter().map(|warning| cut(warning)));
    verdict
}

/// The warnings in addition to those of rules.
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
    // Nothing that a rule sees has changed: controllers write finalizers and owners on objects that a newer rule would reject, and such
    // objects must stay deletable.
    if operation == Operation::Update && object == old {
        return AdmissionVerdict::default();
    }
    let about = about(key, object.as_ref().or(old.as_ref()), &known.namespace_labels);
    // A missing value is null, as in ValidatingAdmissionPolicy.
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

/// Checks that the expressions of a ValidationRule compile: this is the earliest point to find a typo.
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

/// Adds the defaults of our schemas that the object lacks.
pub fn default(request: &Request) -> AdmissionVerdict {
    let (Some(key), Some(Operation::Create | Operation::Update)) = (&request.key, request.operation) else {
        return AdmissionVerdict::default();
    };
    let Some(Value::Object(object)) = &request.object else { return AdmissionVerdict::default() };
    let (now, old) = request.seen(key);
    // Otherwise the next finalizer on an old object would count as a change, and be judged.
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

/// The patch that adds to `given` the fields that only `whole` has. Fields that only `given` has stay: the installed CRD determines whether
/// they are known.
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
