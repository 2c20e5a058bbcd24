//! How the pods of a subject are built.

use crate::{Fact, Failure, Reason, Role, Subject, image};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// A source of fields for a pod: the runtime, the user's component, the model ...
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its content: a JSON object.
    #[serde(with = "image::json")]
    pub content: String,
}

request! {
    /// The question.
    [Default] {
        /// The subject of the decision.
        subject: Subject as &'a Subject,
        /// The role of the pod.
        role: Role as Role,
        /// For a leader or a worker: the role of its group.
        #[cfg_attr(feature = "host", component(name = "group-role"))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_role: Option<Role> as Option<Role>,
        /// The layers, lowest precedence first.
        layers: Vec<Layer> as &'a [Layer],
        /// The current template, with the changes of earlier plugins, as a JSON object.
        #[serde(with = "image::json")]
        template: String as &'a str,
        /// Seconds since 1970, rounded down to a minute. Set only if the plugin wants the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64> as Option<u64>,
        /// Additional facts, by name. Ignore unknown ones.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

enumeration! {
    /// An action on the template: `add`, `remove` and `replace` as in RFC 6902, and `extend`.
    pub enum Action {
        /// Adds the value at the path. In an object, it replaces an existing field. In a list, it inserts the value before the index, and
        /// `-` appends it. The object or list must exist.
        Add = "add",
        /// Removes the existing value. It must exist.
        Remove = "remove",
        /// Replaces the existing value. It must exist.
        Replace = "replace",
        /// Adds all elements of a list, or all fields of an object, to the existing list or object, which must exist.
        Extend = "extend",
    }
}

/// One change of the template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The kind of change.
    pub action: Action,
    /// The path: a JSON Pointer into the template, such as `/spec/containers/0/env/-`.
    pub path: String,
    /// The JSON value; absent only for `remove`.
    #[serde(default, with = "image::optional_json", skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The name of the layer that requested the change, or `plugin`.
    pub layer: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// The changes, in order. The host applies all of them or none.
    #[serde(deserialize_with = "image::list")]
    pub operations: Vec<Operation>,
    /// The reasons for the answer.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

impl Request {
    /// Parses the current template (`metadata` and `spec`). `T` needs only the fields that the policy reads; `serde_json::Value` has all.
    pub fn template<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read(&self.template, "the template")
    }

    /// Parses the fact with this name, if there is one.
    pub fn fact<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| read(&fact.value, name)).transpose()
    }

    /// Parses the layer with this name, such as `runtime` or `user`, if there is one.
    pub fn layer<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.layers.iter().find(|layer| layer.name == name).map(Layer::content).transpose()
    }
}

impl Layer {
    /// Parses the content of the layer.
    pub fn content<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read(&self.content, &self.name)
    }
}

impl Operation {
    /// Adds the value at the path. In an object, it replaces an existing field. In a list, it inserts the value before the index, and `-`
    /// appends it: `/spec/containers/0/env/-`. The object or list must exist: if the container has no `env`, add a list at
    /// `/spec/containers/0/env` instead.
    pub fn add(path: impl Into<String>, value: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Add, path: path.into(), value: Some(write(value)?), layer: layer.into() })
    }

    /// Replaces the existing value, which must exist.
    pub fn replace(path: impl Into<String>, value: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Replace, path: path.into(), value: Some(write(value)?), layer: layer.into() })
    }

    /// Appends all elements of a list to the existing list, or adds all fields of an object to the existing object, which must exist.
    pub fn extend(path: impl Into<String>, values: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Extend, path: path.into(), value: Some(write(values)?), layer: layer.into() })
    }

    /// Removes the existing value, which must exist.
    pub fn remove(path: impl Into<String>, layer: impl Into<String>) -> Self {
        Self { action: Action::Remove, path: path.into(), value: None, layer: layer.into() }
    }
}

fn read<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::refusal(format!("{what} can't be read: {error}")))
}

fn write(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::fault(format!("a value can't be written as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_layers_and_writes_operations() {
        let layers = vec![Layer { name: "user".into(), content: r#"{"replicas":2}"#.into() }];
        let request = Request { layers, template: "{".into(), ..Request::default() };
        let user: Option<serde_json::Value> = request.layer("user").unwrap();
        let replicas = &user.unwrap()["replicas"];
        assert_eq!(Operation::add("/spec/replicas", replicas, "user").unwrap().value.as_deref(), Some("2"));
        assert_eq!(request.layer::<serde_json::Value>("model"), Ok(None));
        assert!(request.template::<serde_json::Value>().unwrap_err().message.starts_with("the template can't be read"));
    }
}
