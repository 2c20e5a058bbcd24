//! Checks that the fields in a rule exist, against the schemas of the kinds that it applies to: a typo is an error when the rule is
//! applied, instead of a rule that never matches.

use crate::subject_kind::SubjectKind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use pointsman_crds::{KINDS, policy::rule::RuleLookup};
use pointsman_sandbox::{
    evaluator::{Path, Step},
    words,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// The maximum number of fields in a message.
const LISTED: usize = 8;

/// The maximum length of a name in a message.
const TOLD: usize = 64;

/// The edit distance up to which a name always counts as a typo of another.
const NEAR: usize = 2;

const STRING: &str = "a string";
const NUMBER: &str = "a number";
const BOOLEAN: &str = "a boolean";
const NUMBER_OR_STRING: &str = "a number or a string";

/// Kubernetes' escapes for characters that CEL doesn't permit in a name.
const ESCAPES: [(&str, &str); 4] = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];

/// CEL's keywords: Kubernetes adds double underscores around a field with such a name.
const KEYWORDS: &str =
    "as break const continue else false for function if import in let loop namespace null package return true var void while";

/// The roots that Kubernetes defines with the same structure for every rule.
static FIXED: LazyLock<[(&str, KindFields); 3]> = LazyLock::new(|| {
    [
        ("namespaceObject", KindFields { group: String::new(), name: "Namespace".to_owned(), root: namespace() }),
        ("params", KindFields { group: String::new(), name: "ConfigMap".to_owned(), root: config_map() }),
        ("request", KindFields { group: String::new(), name: "AdmissionRequest".to_owned(), root: admission_request() }),
    ]
});

/// The key of a map.
static KEY: Node = Node::Scalar(STRING);

/// The index of a list.
static INDEX: Node = Node::Scalar(NUMBER);

/// The schema of a kind, reduced to its fields. Building one is as slow as building its CRD, so it is built once.
#[derive(Clone, Debug)]
pub struct KindFields {
    /// The API group, such as ome.io.
    pub group: String,
    /// The kind, such as InferenceService.
    pub name: String,
    root: Node,
}

/// The fields of all kinds that we serve.
pub fn shapes() -> &'static [KindFields] {
    static SHAPES: LazyLock<Vec<KindFields>> =
        LazyLock::new(|| KINDS.iter().filter_map(|served| KindFields::from_crd(&(served.crd)())).collect());
    &SHAPES
}

impl KindFields {
    /// The fields of a CRD's kind, in the stored version; none without a schema.
    pub fn from_crd(crd: &CustomResourceDefinition) -> Option<Self> {
        let stored = crd.spec.versions.iter().find(|version| version.storage)?;
        let schema = stored.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        let (group, name) = (crd.spec.group.clone(), crd.spec.names.kind.clone());
        Some(Self { group, name, root: Node::from_schema(schema).resource() })
    }

    /// Whether objects of the kind are subjects.
    pub fn is_subject(&self) -> bool {
        SubjectKind::find_by_name(&self.group, &self.name).is_some()
    }
}

/// The fields of a root that is the same in every rule: `namespaceObject`, `params`, `request`.
pub fn fixed(root: &str) -> Option<&'static KindFields> {
    FIXED.iter().find(|(name, _)| *name == root).map(|(_, shape)| shape)
}

/// The fields of the root `lookups`.
pub fn of_lookups(lookups: &[RuleLookup]) -> KindFields {
    let found = |lookup: &RuleLookup| match lookup {
        RuleLookup { subjects: Some(_), .. } => Node::Scalar(NUMBER),
        RuleLookup { models: Some(_), .. } => list_of(model()),
        _ => list_of(runtime()),
    };
    let named: BTreeMap<Box<str>, Node> = lookups.iter().map(|lookup| (lookup.name.as_str().into(), found(lookup))).collect();
    let root = Node::Fields { named: named.into_iter().collect(), others: None };
    KindFields { group: String::new(), name: "rule".to_owned(), root }
}

/// Why a path is invalid; none if it is valid. `shapes` are the fields of the kinds that the root may have; a field that one of them has is
/// valid. Without shapes, every path is valid.
pub fn unknown(path: &Path, shapes: &[&KindFields]) -> Option<String> {
    lacking(&path.root, &path.steps, shapes).map(|(whole, why)| format!("{whole}: {why}"))
}

/// Why the steps to a field of an object of a kind are invalid; none if they are valid.
pub fn why_unknown(steps: &[Step], shape: &KindFields) -> Option<String> {
    lacking("", steps, &[shape]).map(|(_, why)| why)
}

/// The shortest invalid prefix of a path, and why it is invalid.
fn lacking(root: &str, steps: &[Step], shapes: &[&KindFields]) -> Option<(String, String)> {
    let mut places: Vec<SchemaPosition<'_>> = shapes.iter().map(|shape| (shape.name.as_str(), &shape.root)).collect();
    if places.is_empty() {
        return None;
    }
    let mut before = Vec::new();
    for step in steps {
        let next: Vec<_> = places.iter().flat_map(|&(kind, node)| node.inside(step).into_iter().map(move |node| (kind, node))).collect();
        if next.is_empty() {
            let kinds: Vec<_> = shapes.iter().map(|shape| shape.name.as_str()).collect();
            return Some(sentence(root, &before, step, &places, &kinds));
        }
        before.push(step);
        places = next;
    }
    None
}

/// A kind, and the current position of a path in its schema.
type SchemaPosition<'s> = (&'s str, &'s Node);

/// A node of a schema.
#[derive(Clone, Debug)]
enum Node {
    /// Any structure.
    Anything,
    /// Named fields, sorted, and the node of all others, if others are permitted.
    Fields { named: Box<[(Box<str>, Node)]>, others: Option<Box<Node>> },
    /// A list with elements of this node.
    List(Box<Node>),
    /// A value without an inner structure, with its description.
    Scalar(&'static str),
}

impl Node {
    fn from_schema(schema: &JSONSchemaProps) -> Self {
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            return Self::Anything;
        }
        if schema.x_kubernetes_int_or_string == Some(true) {
            return Self::Scalar(NUMBER_OR_STRING);
        }
        match schema.type_.as_deref() {
            Some("object") => {
                let named = schema.properties.iter().flatten().map(|(name, property)| (name.as_str().into(), Self::from_schema(property)));
                let others = match &schema.additional_properties {
                    Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(Self::from_schema(schema)),
                    Some(JSONSchemaPropsOrBool::Bool(true)) => Some(Self::Anything),
                    Some(JSONSchemaPropsOrBool::Bool(false)) | None => None,
                };
                let object = Self::Fields { named: named.collect(), others: others.map(Box::new) };
                if schema.x_kubernetes_embedded_resource == Some(true) { object.resource() } else { object }
            }
            Some("array") => Self::List(Box::new(match &schema.items {
                Some(JSONSchemaPropsOrArray::Schema(items)) => Self::from_schema(items),
                Some(JSONSchemaPropsOrArray::Schemas(_)) | None => Self::Anything,
            })),
            Some("string") => Self::Scalar(STRING),
            Some("integer" | "number") => Self::Scalar(NUMBER),
            Some("boolean") => Self::Scalar(BOOLEAN),
            _ => Self::Anything,
        }
    }

    /// Adds the fields that every object has. Schemas omit them, or only declare `metadata` as an object.
    fn resource(self) -> Self {
        match self {
            Self::Fields { named, others } => {
                let mut named: BTreeMap<_, _> = named.into_iter().collect();
                named.insert("apiVersion".into(), Self::Scalar(STRING));
                named.insert("kind".into(), Self::Scalar(STRING));
                named.insert("metadata".into(), object_meta());
                Self::Fields { named: named.into_iter().collect(), others }
            }
            other => other,
        }
    }

    /// The nodes to which a step may lead; empty if the step is impossible.
    fn inside(&self, step: &Step) -> Vec<&Self> {
        match (self, step) {
            (Self::Anything, _) => vec![self],
            (Self::Fields { named, others }, Step::Field(name)) => {
                let find = |name: &str| named.binary_search_by(|(known, _)| (**known).cmp(name)).ok().and_then(|at| named.get(at));
                let found = find(name).or_else(|| find(&unescaped(name)));
                found.map(|(_, node)| node).or(others.as_deref()).into_iter().collect()
            }
            (Self::Fields { named, others }, Step::Element) => named.iter().map(|(_, node)| node).chain(others.as_deref()).collect(),
            (Self::Fields { .. }, Step::Key) => vec![&KEY],
            (Self::List(element), Step::Element) => vec![element],
            (Self::List(_), Step::Key) => vec![&INDEX],
            (Self::List(_), Step::Field(_)) | (Self::Scalar(_), _) => Vec::new(),
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Anything => "anything",
            Self::Fields { .. } => "an object",
            Self::List(_) => "a list",
            Self::Scalar(words) => words,
        }
    }
}

/// The actual name of a field that CEL escapes.
fn unescaped(name: &str) -> String {
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && KEYWORDS.split(' ').any(|keyword| keyword == word)
    {
        return word.to_owned();
    }
    let (mut plain, mut rest) = (String::with_capacity(name.len()), name);
    while let Some(first) = rest.chars().next() {
        let escape = ESCAPES.iter().find_map(|(escape, meant)| rest.strip_prefix(escape).map(|after| (*meant, after)));
        if let Some((meant, after)) = escape {
            plain.push_str(meant);
            rest = after;
        } else {
            plain.push(first);
            rest = rest.strip_prefix(first).unwrap_or_default();
        }
    }
    plain
}

/// The path that ends with the invalid `step` after the valid steps `before`, and why it is invalid.
fn sentence(root: &str, before: &[&Step], step: &Step, places: &[SchemaPosition<'_>], kinds: &[&str]) -> (String, String) {
    let way = written(before.iter().copied());
    let whole = format!("{root}{way}{}", written([step]));
    if let Step::Field(name) = step
        && places.iter().any(|(_, node)| matches!(node, Node::Fields { .. }))
    {
        let known = places.iter().flat_map(|(_, node)| names(node)).collect();
        return (whole, format!("{}{}", no_such_field(kinds), hint(&unescaped(name), &known)));
    }
    let distinct = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(" or ");
    let kinds = distinct(places.iter().map(|(kind, _)| with_article(kind)).collect());
    let words = distinct(places.iter().map(|(_, node)| node.words().to_owned()).collect());
    let way = way.strip_prefix('.').unwrap_or(&way);
    let lacks = match step {
        Step::Field(_) if words == "a list" => "has elements and no fields",
        Step::Field(_) => "has no fields",
        Step::Element => "has no elements",
        Step::Key => "has no keys",
    };
    let place = if way.is_empty() { root } else { way };
    let why = format!("in {kinds}, {place} is {words}, which {lacks}");
    (whole, why)
}

fn names(node: &Node) -> impl Iterator<Item = &str> {
    let named = if let Node::Fields { named, .. } = node { &**named } else { &[] };
    named.iter().map(|(name, _)| &**name)
}

/// Steps in readable form: `.spec.containers[].image`, `.metadata.labels["a.b/c"]`.
fn written<'s>(steps: impl IntoIterator<Item = &'s Step>) -> String {
    let one = |step: &Step| match step {
        Step::Field(name) if is_plain(name) => format!(".{}", short(name)),
        Step::Field(name) => format!("[{:?}]", short(name)),
        Step::Element => "[]".to_owned(),
        Step::Key => "[key]".to_owned(),
    };
    steps.into_iter().map(one).collect()
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn short(name: &str) -> String {
    if name.chars().count() <= TOLD { name.to_owned() } else { name.chars().take(TOLD).chain(['\u{2026}']).collect() }
}

fn no_such_field(kinds: &[&str]) -> String {
    let kinds: BTreeSet<String> = kinds.iter().map(|kind| with_article(kind)).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    match kinds.split_last() {
        Some((last, [])) => format!("{last} has no such field"),
        Some((last, others)) => format!("neither {} nor {last} has such a field", others.join(", ")),
        None => "there is no such field".to_owned(),
    }
}

/// A kind with its article, which depends on the first letter, and on how that is pronounced in an abbreviation such as LLM.
fn with_article(kind: &str) -> String {
    let mut letters = kind.chars();
    let (first, second) = (letters.next().unwrap_or_default(), letters.next().unwrap_or_default());
    let vowels = if second.is_ascii_uppercase() { "AEFHILMNORSX" } else { "AEIO" };
    format!("{} {kind}", if vowels.contains(first) { "an" } else { "a" })
}

/// The probable name, otherwise the existing names.
pub(crate) fn hint(name: &str, known: &BTreeSet<&str>) -> String {
    if let Some(nearest) = nearest(name, known) {
        return format!("; did you mean {nearest}?");
    }
    let listed = known.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    match known.len() {
        0 => String::new(),
        1 => format!("; there is {listed}"),
        count if count > LISTED => format!("; there are {listed} and {} more", count - LISTED),
        _ => format!("; there are {listed}"),
    }
}

/// The probable name, if one is close: at most two edits, or a third of the name's length.
fn nearest<'k>(name: &str, known: &BTreeSet<&'k str>) -> Option<&'k str> {
    words::nearest(name, known.iter().copied(), NEAR.max(name.chars().count() / 3))
}

/// An object: the names of its string fields, and its other fields.
fn fields<const N: usize>(strings: &str, others: [(&str, Node); N]) -> Node {
    let strings = strings.split_whitespace().map(|name| (name, Node::Scalar(STRING)));
    let named: BTreeMap<Box<str>, Node> = strings.chain(others).map(|(name, node)| (name.into(), node)).collect();
    Node::Fields { named: named.into_iter().collect(), others: None }
}

fn list_of(element: Node) -> Node {
    Node::List(Box::new(element))
}

fn strings() -> Node {
    list_of(Node::Scalar(STRING))
}

fn map_of(value: Node) -> Node {
    Node::Fields { named: Box::default(), others: Some(Box::new(value)) }
}

fn object_meta() -> Node {
    let flags = [("blockOwnerDeletion", Node::Scalar(BOOLEAN)), ("controller", Node::Scalar(BOOLEAN))];
    fields(
        "creationTimestamp deletionTimestamp generateName name namespace resourceVersion uid",
        [
            ("annotations", map_of(Node::Scalar(STRING))),
            ("deletionGracePeriodSeconds", Node::Scalar(NUMBER)),
            ("finalizers", strings()),
            ("generation", Node::Scalar(NUMBER)),
            ("labels", map_of(Node::Scalar(STRING))),
            ("managedFields", Node::Anything),
            ("ownerReferences", list_of(fields("apiVersion kind name uid", flags))),
        ],
    )
}

/// The known fields of a namespace: its name and its labels.
fn namespace() -> Node {
    let metadata = fields("name", [("labels", map_of(Node::Scalar(STRING)))]);
    fields("apiVersion kind", [("metadata", metadata)])
}

/// The fields of a ConfigMap that are part of a policy set.
fn config_map() -> Node {
    fields("apiVersion kind", [("data", map_of(Node::Scalar(STRING))), ("metadata", fields("name namespace", []))])
}

/// A model in a lookup's result.
fn model() -> Node {
    let named = fields("name version", []);
    fields(
        "kind namespace name modelType architecture quantization parameterSize state",
        [
            ("labels", map_of(Node::Scalar(STRING))),
            ("annotations", map_of(Node::Scalar(STRING))),
            ("disabled", Node::Scalar(BOOLEAN)),
            ("format", named.clone()),
            ("framework", named),
            ("capabilities", strings()),
        ],
    )
}

/// A runtime in a lookup's result.
fn runtime() -> Node {
    let supported = fields("name version comparison", [("weight", Node::Scalar(NUMBER))]);
    let model = fields(
        "architecture quantization",
        [
            ("format", supported.clone()),
            ("framework", supported),
            ("autoSelect", Node::Scalar(BOOLEAN)),
            ("priority", Node::Scalar(NUMBER)),
        ],
    );
    fields(
        "kind namespace name smallest largest",
        [
            ("labels", map_of(Node::Scalar(STRING))),
            ("annotations", map_of(Node::Scalar(STRING))),
            ("disabled", Node::Scalar(BOOLEAN)),
            ("models", list_of(model)),
            ("protocols", strings()),
        ],
    )
}

fn admission_request() -> Node {
    let kind = fields("group kind version", []);
    let resource = fields("group resource version", []);
    let user = fields("uid username", [("extra", map_of(strings())), ("groups", strings())]);
    fields(
        "name namespace operation requestSubResource subResource",
        [
            ("dryRun", Node::Scalar(BOOLEAN)),
            ("kind", kind.clone()),
            ("options", Node::Anything),
            ("requestKind", kind),
            ("requestResource", resource.clone()),
            ("resource", resource),
            ("userInfo", user),
        ],
    )
}

#[cfg(test)]
mod tests;
