//! Checks one object of a served kind: whether the API server would accept it, and what the rules of stage Input report.

use super::{
    finding::{Finding, ObjectName, Severity, SkippedCheck},
    images,
};
use crate::{
    cli::offline::{
        fields::{self, InvalidObject},
        files::{Document, SourceLocation},
    },
    serve::admission::kinds,
};
use pointsman_core::{
    objects::strings,
    question::entries,
    resource::Resource,
    rules::visible,
    rules::{
        self, Rules,
        fields::KindFields,
        judge::{self, RuleInput},
        lookups::LookupContext,
        schema::{self, Step, Violation},
        shipped,
    },
    selector::NAMESPACE_NAME,
    structural::{self, Kind},
    world::{Labels, ObjectKey, World},
};
use pointsman_crds::policy::rule::RuleStage;
use pointsman_sandbox::{
    cache::Cache,
    engine::Lane,
    evaluator::{self, Evaluator},
    point::Subject,
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Why a rule that compares isn't evaluated.
const OF_ADMISSION: &str = "it reads oldObject or request, which only admission has";

/// Why a rule that looks up other objects isn't evaluated.
const OF_THE_CLUSTER: &str =
    "it looks up objects that may be in the cluster and not in these files: set --complete if the files are complete";

/// The timeout of the rules' sums over other objects. The findings must not depend on the machine's speed.
const EVALUATION_TIMEOUT: Duration = Duration::from_hours(1);

/// The labels of namespaces.
#[derive(Debug, Default)]
pub(super) struct Namespaces(BTreeMap<String, Labels>);

impl Namespaces {
    /// Adds a namespace of the files, with its labels.
    pub(super) fn note(&mut self, name: &str, mut labels: Labels) {
        labels.insert(NAMESPACE_NAME.to_owned(), name.to_owned());
        self.0.insert(name.to_owned(), labels);
    }

    /// The labels of a namespace, which may be in no file; none without a namespace.
    fn labels(&self, name: &str) -> Labels {
        let named = || Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())]);
        if name.is_empty() { Labels::new() } else { self.0.get(name).cloned().unwrap_or_else(named) }
    }
}

/// An object of a served kind.
pub(super) struct Object {
    pub(super) place: SourceLocation,
    pub(super) named: ObjectName,
    /// Its name, or one as the API server generates it from `generateName`.
    name: String,
    api_version: String,
    kind: &'static Kind,
    pub(super) written: Value,
    /// As the API server would store it.
    kept: Value,
    pub(super) findings: Vec<Finding>,
    /// The number of findings that don't affect other checks: those about unknown fields and images. They come first.
    separate: usize,
}

impl Object {
    /// Parses an object, and reports its unknown fields and invalid images. Its name may be generated.
    pub(super) fn from_document(
        document: &Document,
        api_version: &str,
        kind: &'static Kind,
        namespace: &str,
        generated: Option<&str>,
    ) -> Self {
        let Document { place, object } = document;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let whole = Value::Object(object.clone());
        let (called, metadata) = (text(&whole["kind"]), &whole["metadata"]);
        let namespace = match metadata["namespace"].as_str() {
            _ if !kind.namespaced() => "",
            Some(given) if !given.is_empty() => given,
            _ => namespace,
        };
        let given = text(&metadata["name"]);
        let shown = generated.map_or_else(|| given.clone(), |_| format!("{}*", text(&metadata["generateName"])));
        let named = ObjectName { kind: called, namespace: namespace.to_owned(), name: shown };
        let mut kept = object.clone();
        let unknown = [kind.shape(&mut kept), unknown_of_metadata(api_version, &named.kind, metadata)].concat();
        // The API server drops the status of a new object.
        kept.shift_remove("status");
        let mut made = Self {
            place: place.clone(),
            named,
            name: generated.map_or(given, str::to_owned),
            api_version: api_version.to_owned(),
            kind,
            written: whole,
            kept: Value::Object(kept),
            findings: Vec::new(),
            separate: 0,
        };
        let shape = shape(api_version, &made.named.kind);
        for path in unknown {
            let (place, field) = fields::locate(place, &path);
            let why = shape.and_then(|shape| rules::fields::why_unknown(&steps(&path), shape));
            let why = why.unwrap_or_else(|| "there is no such field".to_owned());
            made.findings.push(Finding::new(Severity::Error, &place, &made.named, field, why));
        }
        for (path, flaw) in images::flaws(&made.kept, kind.schema()) {
            let (place, field) = fields::locate(place, &path);
            made.findings.push(Finding::new(Severity::Error, &place, &made.named, field, flaw));
        }
        made.separate = made.findings.len();
        made
    }

    /// Whether an error prevents further checks. Unknown fields are dropped, and the image of a container doesn't affect its plan.
    pub(super) fn is_bad(&self) -> bool {
        self.findings.iter().skip(self.separate).any(|finding| finding.severity == Severity::Error)
    }

    /// Whether it has this key.
    pub(super) fn is(&self, key: &ObjectKey) -> bool {
        let ObjectName { kind, namespace, .. } = &self.named;
        key.resource.kind == kind && key.resource.api_version() == self.api_version && key.namespace == *namespace && key.name == self.name
    }

    /// Whether it is of a kind of subject.
    pub(super) fn is_subject(&self) -> bool {
        Resource::find(&self.api_version, &self.named.kind).is_some_and(Resource::is_subject)
    }

    /// Whether it is selected: services only if they are named or no service is, and other objects always.
    pub(super) fn is_wanted(&self, only: &[(String, String)]) -> bool {
        let ObjectName { namespace, name, .. } = &self.named;
        !self.is_subject() || only.is_empty() || only.iter().any(|wanted| (&wanted.0, &wanted.1) == (namespace, name))
    }

    /// Its name in messages.
    pub(super) fn called(&self) -> String {
        let ObjectName { kind, namespace, name } = &self.named;
        let of = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        format!("{kind} {of}{name}")
    }

    /// Validates it against its CRD. Returns the CRD's rules that are about changes, which are skipped.
    pub(super) fn hold(&mut self, evaluator: &Evaluator) -> Vec<SkippedCheck> {
        let schema = self.kind.schema();
        let violations = schema::validate(&self.kept, schema);
        let blocked = violations.iter().any(|violation| violation.blocks);
        self.take(violations);
        if blocked {
            return Vec::new();
        }
        let evaluated = schema::rules(&self.kept, schema, evaluator);
        self.take(evaluated.violations);
        let passed = evaluated.not_evaluated.into_iter().map(|(field, rule)| SkippedCheck {
            what: format!("the CRD of {}: {field}: {rule}", self.named.kind),
            why: "it compares with the object before a change, which only admission has".to_owned(),
            usual: false,
        });
        passed.collect()
    }

    fn take(&mut self, violations: Vec<Violation>) {
        for Violation { path, message, field, .. } in violations {
            let steps: Vec<structural::Step> = path.into_iter().map(place_of).collect();
            let (place, _) = fields::locate(&self.place, &steps);
            self.findings.push(Finding::new(Severity::Error, &place, &self.named, field, message));
        }
    }

    /// Why our own types can't parse it, if they can't: the schema doesn't express all of their requirements.
    pub(super) fn unread(&self) -> Option<InvalidObject> {
        let error = (self.kind.read)(self.written.clone()).err()?;
        Some(fields::wrong(&self.place, &self.written, self.kind.read, &error))
    }

    /// Records that the object can't be parsed, unless the same was reported.
    pub(super) fn refuse(&mut self, refusal: InvalidObject) {
        let InvalidObject { place, field, message } = refusal;
        let nameless = field.is_empty() && self.named.name.is_empty();
        let (lacks, mistaken) = (message.starts_with("missing field"), message.starts_with("invalid type"));
        let told = |finding: &Finding| {
            let same = !field.is_empty() && finding.line == place.line;
            let required = finding.message == "Required value";
            // If a whole part has another type, the field isn't known here.
            let typed = field.is_empty() && finding.message.contains(" in body must be of type ");
            let known = same || lacks && required || mistaken && typed || nameless && finding.field == "metadata.name";
            finding.severity == Severity::Error && known
        };
        if !self.findings.iter().any(told) {
            self.findings.push(Finding::new(Severity::Error, &place, &self.named, field, message));
        }
    }

    /// Whether no rule applies to it, at any entry point.
    pub(super) fn is_passed_over(&self) -> bool {
        let resource = kinds::find(&self.api_version, &self.named.kind);
        resource.is_some_and(|resource| !kinds::is_judged(resource) || kinds::is_left_alone(resource, &self.kept))
    }

    /// Evaluates the rules of stage Input; those that look up other objects only if all objects are known. Returns the skipped rules.
    pub(super) fn judge(&mut self, rules: &Rules, namespaces: &Namespaces, world: Option<(&World, &Cache)>) -> Vec<SkippedCheck> {
        if self.is_passed_over() {
            return Vec::new();
        }
        let labels = namespaces.labels(&self.named.namespace);
        let about = self.about(&labels);
        let mut root = |name: &str| match name {
            "object" => {
                let ObjectName { kind, namespace, .. } = &self.named;
                Some(Arc::from(visible::object(&self.api_version, kind, namespace, &self.name, &self.kept).to_string()))
            }
            // A missing value is null, as in admission.
            "namespaceObject" if about.namespace.is_empty() => Some(Arc::from("null")),
            "namespaceObject" => Some(Arc::from(visible::namespace(&about.namespace, &labels).to_string())),
            _ => None,
        };
        let surroundings = world.zip(self.key()).map(|((world, memo), key)| (world.surroundings(&key), memo));
        let around =
            surroundings.as_ref().map(|(surroundings, memo)| LookupContext::new(surroundings, Some(memo), None, EVALUATION_TIMEOUT));
        let case = RuleInput {
            stage: RuleStage::Input,
            about: &about,
            operation: None,
            root: &mut root,
            around: around.as_ref(),
            lane: Lane::Work,
        };
        let judgement = rules.judge(case);
        for finding in &judgement.findings {
            let severity = if finding.denies() {
                Severity::Error
            } else if finding.warns() {
                Severity::Warning
            } else {
                Severity::Audit
            };
            let message = judge::sentence(&finding.rule, &finding.message);
            self.findings.push(Finding::new(severity, &self.place, &self.named, String::new(), message));
        }
        let of_admission = judgement.not_evaluated.into_iter().map(|name| {
            let rule = rules.find(&name);
            let why = if rule.is_none_or(|rule| rule.is_of_admission()) { OF_ADMISSION } else { OF_THE_CLUSTER };
            let usual = rule.zip(shipped::find(&name)).is_some_and(|(rule, brought)| rule.bound.spec == brought.spec);
            SkippedCheck { what: format!("the rule {name}"), why: why.to_owned(), usual }
        });
        let ignored = judgement.ignored.into_iter().map(|(rule, why)| SkippedCheck { what: format!("the rule {rule}"), why, usual: false });
        of_admission.chain(ignored).collect()
    }

    fn key(&self) -> Option<ObjectKey> {
        let resource = kinds::find(&self.api_version, &self.named.kind)?;
        Some(ObjectKey { resource, namespace: self.named.namespace.clone(), name: self.name.clone() })
    }

    /// The object as selectors see it.
    fn about(&self, namespace_labels: &Labels) -> Subject {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let map = |name: &str| entries(&strings(&self.kept["metadata"][name]));
        Subject {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: self.named.kind.clone(),
            namespace: self.named.namespace.clone(),
            name: self.name.clone(),
            labels: map("labels"),
            annotations: map("annotations"),
            namespace_labels: entries(namespace_labels),
        }
    }
}

/// The fields of a kind.
fn shape(api_version: &str, kind: &str) -> Option<&'static KindFields> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    rules::fields::shapes().iter().find(|shape| shape.group == group && shape.name == kind)
}

/// The unknown fields of `metadata`, which the schema of a CRD doesn't check.
fn unknown_of_metadata(api_version: &str, kind: &str, metadata: &Value) -> Vec<Vec<structural::Step>> {
    let Some(shape) = shape(api_version, kind) else { return Vec::new() };
    let names = metadata.as_object().into_iter().flat_map(|metadata| metadata.keys());
    let paths = names.map(|name| ["metadata", name.as_str()].map(|name| structural::Step::Field(name.to_owned())).to_vec());
    paths.filter(|path| rules::fields::why_unknown(&steps(path), shape).is_some()).collect()
}

/// A path in the form that finds the fields of kinds.
fn steps(path: &[structural::Step]) -> Vec<evaluator::Step> {
    let step = |step: &structural::Step| match step {
        structural::Step::Field(name) => evaluator::Step::Field(name.clone()),
        structural::Step::Item(_) => evaluator::Step::Element,
    };
    path.iter().map(step).collect()
}

fn place_of(step: Step) -> structural::Step {
    match step {
        Step::Field(name) | Step::Key(name) => structural::Step::Field(name),
        Step::Item(number) => structural::Step::Item(number),
    }
}
