//! The positions in a pod's spec: how lists are merged there, which fields exclude each other, and which values are valid.

use crate::node::{Form, Node};
use pointsman_plugin::Failure;
use serde_json::Value;
use std::collections::BTreeSet;

/// A position in a pod's spec.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpecPosition {
    /// The spec itself.
    Pod,
    /// A container of any sort.
    Container,
    /// A volume or a resource claim: it has a name and one source.
    Volume,
    /// An environment variable.
    Variable,
    /// An object in which one field excludes all others, such as `valueFrom`.
    OneOf,
    /// A probe or a lifecycle handler: it has one of several actions, and other fields are numbers.
    Handler,
    /// The handlers for the start and the stop of a container.
    Lifecycle,
    /// A security context.
    Security,
    /// A container's resources.
    Resources,
    /// An object whose fields are merged one by one.
    Fields,
    /// An object that is only replaced as a whole, because its fields belong together.
    Whole,
    /// A list of texts, which is replaced as a whole.
    Words,
    /// A text.
    Text,
    /// A list whose items have keys.
    List(&'static Keyed),
    /// Anything else: objects merge field by field, lists are replaced.
    Any,
}

/// How the items of a list are identified.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// The key fields, and the default for a missing one.
    keys: &'static [(&'static str, Option<&'static str>)],
    /// The position of an item.
    pub(crate) item: SpecPosition,
    /// Whether a key may occur only once in a layer. Otherwise, the last item is used, as in the kubelet.
    once: bool,
}

// A container without a name is the main container; the code that merges handles it.
static CONTAINERS: Keyed = Keyed { keys: &[("name", Some(""))], item: SpecPosition::Container, once: false };
static INIT_CONTAINERS: Keyed = Keyed { keys: &[("name", None)], item: SpecPosition::Container, once: true };
static VOLUMES: Keyed = Keyed { keys: &[("name", None)], item: SpecPosition::Volume, once: true };
static VARIABLES: Keyed = Keyed { keys: &[("name", None)], item: SpecPosition::Variable, once: false };
static PORTS: Keyed = Keyed { keys: &[("containerPort", None), ("protocol", Some("TCP"))], item: SpecPosition::Any, once: false };
static MOUNTS: Keyed = Keyed { keys: &[("mountPath", None)], item: SpecPosition::Any, once: true };
static DEVICES: Keyed = Keyed { keys: &[("devicePath", None)], item: SpecPosition::Any, once: true };
static NAMED: Keyed = Keyed { keys: &[("name", Some(""))], item: SpecPosition::Any, once: false };
static CLAIMS: Keyed = Keyed { keys: &[("name", None)], item: SpecPosition::Volume, once: true };
static ALIASES: Keyed = Keyed { keys: &[("ip", None)], item: SpecPosition::Any, once: false };
static SPREADS: Keyed = Keyed { keys: &[("topologyKey", None), ("whenUnsatisfiable", None)], item: SpecPosition::Any, once: false };

/// The actions of a probe or a handler.
const DOES: [&str; 5] = ["exec", "grpc", "httpGet", "sleep", "tcpSocket"];

impl SpecPosition {
    /// The position of a field.
    pub(crate) fn field(self, name: &str) -> Self {
        match (self, name) {
            (Self::Pod, "containers") => Self::List(&CONTAINERS),
            (Self::Pod, "initContainers" | "ephemeralContainers") => Self::List(&INIT_CONTAINERS),
            (Self::Pod, "volumes") => Self::List(&VOLUMES),
            (Self::Pod, "resourceClaims") => Self::List(&CLAIMS),
            (Self::Pod, "imagePullSecrets" | "schedulingGates") | (Self::Resources, "claims") => Self::List(&NAMED),
            (Self::Pod, "hostAliases") => Self::List(&ALIASES),
            (Self::Pod, "topologySpreadConstraints") => Self::List(&SPREADS),
            (Self::Pod, "nodeSelector") | (Self::Resources, "limits" | "requests") => Self::Fields,
            (Self::Pod | Self::Container, "securityContext") => Self::Security,
            (Self::Security, "seccompProfile" | "appArmorProfile") => Self::Whole,
            (Self::Container, "name" | "image") | (Self::Variable, "name" | "value") | (Self::Volume, "name") => Self::Text,
            (Self::Container, "args" | "command") => Self::Words,
            (Self::Container, "env") => Self::List(&VARIABLES),
            (Self::Container, "ports") => Self::List(&PORTS),
            (Self::Container, "volumeMounts") => Self::List(&MOUNTS),
            (Self::Container, "volumeDevices") => Self::List(&DEVICES),
            (Self::Container, "resources") => Self::Resources,
            (Self::Container, "livenessProbe" | "readinessProbe" | "startupProbe") | (Self::Lifecycle, "postStart" | "preStop") => {
                Self::Handler
            }
            (Self::Container, "lifecycle") => Self::Lifecycle,
            (Self::Variable, "valueFrom") => Self::OneOf,
            _ => Self::Any,
        }
    }

    /// Whether some fields exclude others.
    pub(crate) fn has_exclusions(self) -> bool {
        matches!(self, Self::OneOf | Self::Volume | Self::Variable | Self::Handler)
    }

    /// Whether one field excludes the other.
    pub(crate) fn excludes(self, given: &str, other: &str) -> bool {
        given != other
            && match self {
                Self::OneOf => true,
                Self::Volume | Self::Variable => given != "name" && other != "name",
                Self::Handler => DOES.contains(&given) && DOES.contains(&other),
                _ => false,
            }
    }

    /// Checks whether the value can be merged at this position.
    pub(crate) fn check(self, node: &Node<'_>, name: &str) -> Result<(), Failure> {
        self.misfit(node).map_err(|misfit| {
            let Misfit { mut way, what } = misfit;
            way.push(name.to_owned());
            way.reverse();
            Failure::refusal(format!("{} {what}; fix it there", way.join(".")))
        })
    }

    fn misfit(self, node: &Node<'_>) -> Result<(), Misfit> {
        match (self, &node.form) {
            (Self::Any | Self::Whole, _) => Ok(()),
            (Self::Text, _) if node.as_str().is_some() => Ok(()),
            (Self::Text, _) => Err(Misfit::new("must be a string")),
            (Self::Words, Form::List(items)) => match items.iter().position(|item| item.as_str().is_none()) {
                None => Ok(()),
                Some(index) => Err(Misfit::new("must be a string: write it in quotes").below(&index.to_string())),
            },
            (Self::List(keyed), Form::List(items)) => {
                let mut before = BTreeSet::new();
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| keyed.misfit(item, &mut before).map_err(|misfit| misfit.below(&index.to_string())))
            }
            (Self::Words | Self::List(_), _) => Err(Misfit::new("must be a list")),
            (_, Form::Object(fields)) => {
                fields.iter().try_for_each(|(name, node)| self.field(name).misfit(node).map_err(|misfit| misfit.below(name)))
            }
            _ => Err(Misfit::new("must be an object")),
        }
    }
}

impl Keyed {
    /// The identity of an item: equal for items with the same key.
    pub(crate) fn identity(&self, item: &Node<'_>) -> String {
        let parts = self.keys.iter().map(|(field, default)| match (key(item, field), default) {
            (Some(given), _) => given.to_string(),
            (None, Some(default)) => Value::from(*default).to_string(),
            (None, None) => String::new(),
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    /// Whether the field is part of the key.
    pub(crate) fn is_key(&self, field: &str) -> bool {
        self.keys.iter().any(|(key, _)| *key == field)
    }

    /// Whether it is a list of a pod's containers, of any kind.
    pub(crate) fn holds_containers(&self) -> bool {
        matches!(self.item, SpecPosition::Container)
    }

    fn misfit(&self, item: &Node<'_>, before: &mut BTreeSet<String>) -> Result<(), Misfit> {
        if item.fields().is_none() {
            return Err(Misfit::new("must be an object"));
        }
        for (field, default) in self.keys {
            match item.get(field) {
                None if default.is_none() => return Err(Misfit::new(format!("needs a {field}"))),
                Some(node) if node.scalar().is_none() => return Err(Misfit::new("must be a string or a number").below(field)),
                _ => {}
            }
        }
        if self.once && !before.insert(self.identity(item)) {
            let keys: Vec<_> = self.keys.iter().filter_map(|(field, _)| Some(key(item, field)?.to_string())).collect();
            return Err(Misfit::new(format!("is the second with the {} {}", self.keys[0].0, keys.join(" and "))));
        }
        self.item.misfit(item)
    }
}

fn key<'n>(item: &'n Node<'_>, field: &str) -> Option<&'n Value> {
    item.get(field).and_then(Node::scalar)
}

/// An invalid value, and the path to it from the inside out.
#[derive(Debug)]
struct Misfit {
    way: Vec<String>,
    what: String,
}

impl Misfit {
    fn new(what: impl Into<String>) -> Self {
        Self { way: Vec::new(), what: what.into() }
    }

    fn below(mut self, step: &str) -> Self {
        self.way.push(step.to_owned());
        self
    }
}
