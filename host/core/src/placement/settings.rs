//! The administrator's settings for placement.

use super::rank::Ties;
use crate::selector::{flaw, selects};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use pointsman_crds::policy::selection::Selection;
use pointsman_sandbox::words;
use serde::{Deserialize, Deserializer};
use serde_saphyr::UserMessageFormatter;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of custom features.
pub const MAX_FEATURES: usize = 16;

/// The prefix of the names of custom features.
const FEATURE_PREFIX: &str = "node.";

/// The maximum length of the rest of such a name.
const MAX_FEATURE_NAME: usize = 48;

/// The maximum length of an expression, in bytes.
const MAX_EXPRESSION: usize = 2048;

/// The maximum number of labels that mark spot nodes.
const MAX_SPOT_LABELS: usize = 32;

/// The maximum duration of reservations for a gang, in seconds.
const MAX_GANG_TIMEOUT: u64 = 3600;

/// The labels with which clouds and Karpenter mark spot nodes.
const SPOT: [(&str, &str); 6] = [
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
    ("oci.oraclecloud.com/oke-is-preemptible", "true"),
];

/// The administrator's settings for placement. An empty label key disables the feature that reads the label.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The pods to place in addition to those of subjects.
    #[serde(deserialize_with = "label_selector")]
    pub pods: Option<LabelSelector>,
    /// The labels with a node's position.
    pub topology: Topology,
    /// The annotation or label of a node with its price.
    pub price: String,
    /// The labels of spot nodes, which may be reclaimed at any time.
    pub spot: Vec<LabelValue>,
    /// The label of a node with the number of its accelerators that are linked to each other.
    pub accelerator_island: String,
    /// The label of a node with the memory of each accelerator, in MiB.
    pub accelerator_memory: String,
    /// Features in addition to the built-in ones.
    pub features: Vec<CustomFeature>,
    /// The duration of reservations for a gang, in seconds. With 0, gangs aren't placed as a whole.
    pub gang_timeout_seconds: u64,
    /// How a node is chosen among those with equal scores.
    pub ties: Ties,
}

/// The labels with a node's position.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// The label with its zone.
    pub zone: String,
    /// The label with its rack.
    pub rack: String,
    /// The label that nodes share if they reach each other by RDMA.
    pub rdma: String,
    /// The label that nodes share if their accelerators are linked.
    pub nvlink: String,
}

/// A label in the form `key=value`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LabelValue {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A feature that an administrator defines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomFeature {
    /// Its name, with the prefix `node.`.
    pub name: String,
    /// A CEL expression over `node` that evaluates to a number.
    pub expression: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pods: None,
            topology: Topology::default(),
            price: "pointsman.dev/price".to_owned(),
            spot: SPOT.iter().map(|(key, value)| LabelValue { key: (*key).to_owned(), value: (*value).to_owned() }).collect(),
            accelerator_island: "pointsman.dev/accelerator-island-size".to_owned(),
            accelerator_memory: "nvidia.com/gpu.memory".to_owned(),
            features: Vec::new(),
            gang_timeout_seconds: 60,
            ties: Ties::default(),
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            zone: "topology.kubernetes.io/zone".to_owned(),
            rack: "topology.kubernetes.io/rack".to_owned(),
            rdma: "pointsman.dev/rdma-domain".to_owned(),
            nvlink: "nvidia.com/gpu.clique".to_owned(),
        }
    }
}

impl Topology {
    /// The label keys from the finest level to the coarsest: nvlink, rdma, rack, zone.
    pub fn levels(&self) -> [&str; 4] {
        [&self.nvlink, &self.rdma, &self.rack, &self.zone]
    }
}

impl TryFrom<String> for LabelValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("{text:?} has no value: write the label like `key=value`"));
        };
        words::key(key).map_err(|why| format!("{key:?} is not a label key: {why}"))?;
        words::label_value(value).map_err(|why| format!("{value:?} is not a label value: {why}"))?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

/// Parses a selector and rejects unknown fields: otherwise, a misspelt field would select all pods.
fn label_selector<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LabelSelector>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Written {
        match_labels: Option<BTreeMap<String, String>>,
        match_expressions: Option<Vec<Requirement>>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Requirement {
        key: String,
        operator: String,
        values: Option<Vec<String>>,
    }
    let written = Option::<Written>::deserialize(from)?;
    let requirement = |Requirement { key, operator, values }| LabelSelectorRequirement { key, operator, values };
    Ok(written.map(|Written { match_labels, match_expressions }| LabelSelector {
        match_labels,
        match_expressions: match_expressions.map(|expressions| expressions.into_iter().map(requirement).collect()),
    }))
}

impl Settings {
    /// Parses and checks YAML. An empty text means the defaults. An error contains the line, if known, and the field.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            budget: serde_saphyr::budget! {
                max_documents: 2, max_nodes: 10_000, max_events: 50_000, max_depth: 16, max_total_scalar_bytes: 1 << 20,
            },
        };
        let mut field = String::new();
        let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
            serde_path_to_error::deserialize::<_, Option<Self>>(yaml).map_err(|error| {
                field = error.path().to_string();
                error.into_inner()
            })
        });
        let settings = read.map_err(|error| parse_error_message(&error, &field))?.unwrap_or_default();
        settings.check()?;
        Ok(settings)
    }

    /// Checks the constraints that the types don't enforce.
    pub fn check(&self) -> Result<(), String> {
        if let Some((_, flaw)) = flaw(&Selection { object_selector: self.pods.clone(), ..Selection::default() }) {
            return Err(format!("pods: {flaw}"));
        }
        let Topology { zone, rack, rdma, nvlink } = &self.topology;
        let keys = [
            ("topology.zone", zone),
            ("topology.rack", rack),
            ("topology.rdma", rdma),
            ("topology.nvlink", nvlink),
            ("price", &self.price),
            ("acceleratorIsland", &self.accelerator_island),
            ("acceleratorMemory", &self.accelerator_memory),
        ];
        for (field, key) in keys {
            if !key.is_empty() {
                words::key(key).map_err(|why| format!("{field}: {key:?} is not a label key: {why}"))?;
            }
        }
        if self.spot.len() > MAX_SPOT_LABELS {
            return Err(format!("spot: there are {} labels: list at most {MAX_SPOT_LABELS}", self.spot.len()));
        }
        if self.gang_timeout_seconds > MAX_GANG_TIMEOUT {
            return Err(format!("gangTimeoutSeconds: it is {}: set at most {MAX_GANG_TIMEOUT}", self.gang_timeout_seconds));
        }
        self.check_features()
    }

    fn check_features(&self) -> Result<(), String> {
        if self.features.len() > MAX_FEATURES {
            return Err(format!("features: there are {}: add at most {MAX_FEATURES}", self.features.len()));
        }
        let mut names = BTreeSet::new();
        for (at, CustomFeature { name, expression }) in self.features.iter().enumerate() {
            if !is_feature_name(name) {
                return Err(format!(
                    "features[{at}].name: {name:?} is not valid: write `{FEATURE_PREFIX}` and 1 to {MAX_FEATURE_NAME} lower-case letters, \
                     digits and -"
                ));
            }
            if !names.insert(name) {
                return Err(format!("features[{at}].name: {name} exists already: rename one of the features"));
            }
            if expression.trim().is_empty() {
                return Err(format!(
                    "features[{name}].expression: it is empty: write a CEL expression over `node` that evaluates to a number"
                ));
            }
            if expression.len() > MAX_EXPRESSION {
                return Err(format!("features[{name}].expression: it has {} bytes: write at most {MAX_EXPRESSION}", expression.len()));
            }
        }
        Ok(())
    }

    /// Whether the settings select a pod by its labels, regardless of its owner.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.pods.as_ref().is_some_and(|selector| selects(selector, |key| labels.get(key).map(String::as_str)))
    }

    /// Whether the labels mark a spot node.
    pub fn is_spot(&self, labels: &BTreeMap<String, String>) -> bool {
        self.spot.iter().any(|LabelValue { key, value }| labels.get(key) == Some(value))
    }
}

/// Whether a custom feature may have this name.
pub fn is_feature_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.strip_prefix(FEATURE_PREFIX).is_some_and(|rest| (1..=MAX_FEATURE_NAME).contains(&rest.len()) && rest.chars().all(allowed))
}

/// The error's message, with its line and field.
fn parse_error_message(error: &serde_saphyr::Error, field: &str) -> String {
    let rendered = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    let message = rendered.split_once(" at line ").map_or(rendered.as_str(), |(message, _)| message).replace('\n', " ");
    let line = error.location().map_or_else(String::new, |location| format!("line {}: ", location.line()));
    // The path of the whole document is a dot, and an unnamed path is a question mark.
    let field = if matches!(field, "" | "." | "?") { String::new() } else { format!("{field}: ") };
    format!("{line}{field}{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_field_has_a_default_and_only_what_is_written_differs() {
        for empty in ["", "# nothing\n", "{}", "topology: {}"] {
            assert_eq!(Settings::from_yaml(empty), Ok(Settings::default()), "{empty:?}");
        }
        let settings = Settings::from_yaml(
            "topology: {rack: example.com/rack, rdma: ''}\nspot: [example.com/spot=yes]\ngangTimeoutSeconds: 0\nties: Scheduler\n\
             features: [{name: node.heat, expression: 'double(node.metadata.labels.heat)'}]\n",
        )
        .unwrap();
        assert_eq!(settings.topology.levels(), ["nvidia.com/gpu.clique", "", "example.com/rack", "topology.kubernetes.io/zone"]);
        assert!(settings.is_spot(&labels(&[("example.com/spot", "yes")])) && !settings.is_spot(&labels(&[("example.com/spot", "no")])));
        assert!(Settings::default().is_spot(&labels(&[("karpenter.sh/capacity-type", "spot")])));
        assert_eq!((settings.gang_timeout_seconds, settings.features.len(), settings.ties), (0, 1, Ties::Scheduler));
    }

    #[test]
    fn pods_are_selected_by_their_labels() {
        let settings = Settings::from_yaml("pods:\n  matchExpressions: [{key: team, operator: In, values: [a, b]}]\n").unwrap();
        assert!(settings.selects(&labels(&[("team", "a")])) && !settings.selects(&labels(&[("team", "c")])));
        assert!(!Settings::default().selects(&labels(&[("team", "a")])));
        assert!(Settings::from_yaml("pods: {}").unwrap().selects(&labels(&[])));
    }

    #[test]
    fn an_error_names_the_line_and_the_field() {
        for (text, parts) in [
            ("price: a\nracks: b\n", ["line 2", "racks"]),
            ("topology:\n  rack: a\n  row: b\n", ["line 3", "row"]),
            ("pods:\n  matchLabel: {a: b}\n", ["line 2", "matchLabel"]),
            ("spot:\n- a=b\n- gold\n", ["spot[1]", "`key=value`"]),
            ("gangTimeoutSeconds: soon\n", ["line 1", "gangTimeoutSeconds"]),
            ("ties: Random\n", ["ties", "Random"]),
        ] {
            let message = Settings::from_yaml(text).unwrap_err();
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let feature = |name: &str, expression: &str| format!("features: [{{name: {name}, expression: '{expression}'}}]");
        let many = |count: usize| {
            let features: Vec<String> = (0..count).map(|at| format!("{{name: node.n{at}, expression: '1.0'}}")).collect();
            format!("features: [{}]", features.join(", "))
        };
        for (text, part) in [
            ("pods: {matchExpressions: [{key: a, operator: Near}]}".to_owned(), "pods: \"Near\" is not an operator"),
            ("topology: {zone: a b}".to_owned(), "topology.zone"),
            ("gangTimeoutSeconds: 3601".to_owned(), "gangTimeoutSeconds"),
            (feature("heat", "1.0"), "features[0].name"),
            (feature("node.Heat", "1.0"), "features[0].name"),
            (feature("node.", "1.0"), "features[0].name"),
            (feature("node.heat", " "), "features[node.heat].expression"),
            (feature("node.heat", &"1".repeat(2049)), "features[node.heat].expression"),
            ("features: [{name: node.a, expression: '1.0'}, {name: node.a, expression: '2.0'}]".to_owned(), "features[1].name"),
            (many(17), "features: there are 17"),
            (format!("spot: [{}]", ["a=b"; 33].join(", ")), "spot: there are 33"),
        ] {
            let message = Settings::from_yaml(&text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert_eq!(Settings::from_yaml(&many(16)).map(|settings| settings.features.len()), Ok(16));
    }
}
