//! What the pods of a subject look like.

use crate::{Fact, Failure, Reason, Role, Subject, image};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// Something that has a say in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// What it says: a JSON object.
    #[serde(with = "image::json")]
    pub content: String,
}

request! {
    /// The question.
    [Default] {
        /// What is to be served.
        subject: Subject as &'a Subject,
        /// What the pod does for it.
        role: Role as Role,
        /// For a leader or a worker: the role of its group.
        #[cfg_attr(feature = "host", component(name = "group-role"))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_role: Option<Role> as Option<Role>,
        /// The layers, the weakest first.
        layers: Vec<Layer> as &'a [Layer],
        /// The template so far, as a JSON object.
        #[serde(with = "image::json")]
        template: String as &'a str,
        /// Seconds since 1970, rounded down to a minute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64> as Option<u64>,
        /// What is told beside these fields.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

enumeration! {
    /// What is done at a place in the template: as in RFC 6902, and `extend`.
    pub enum Action {
        /// Adds the value there, in place of what is there.
        Add = "add",
        /// Takes away what is there, which must exist.
        Remove = "remove",
        /// Puts the value in place of what is there, which must exist.
        Replace = "replace",
        /// Adds all elements of a list, or all members of an object, to the list or object there, which must exist.
        Extend = "extend",
    }
}

/// One step on the way to the new template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// What is done.
    pub action: Action,
    /// Where: a JSON Pointer into the template.
    pub path: String,
    /// The JSON value; absent for `remove` alone.
    #[serde(default, with = "image::optional_json", skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The name of the layer that asked for it, or `plugin`.
    pub layer: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// The steps, in order.
    #[serde(deserialize_with = "image::list")]
    pub operations: Vec<Operation>,
    /// Why.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

impl Request {
    /// The template so far.
    pub fn template<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read(&self.template, "the template")
    }

    /// What the fact of that name says; nothing where there is no such fact.
    pub fn fact<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| read(&fact.value, name)).transpose()
    }

    /// What the layer of that name says; nothing where there is no such layer.
    pub fn layer<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.layers.iter().find(|layer| layer.name == name).map(Layer::content).transpose()
    }
}

impl Layer {
    /// What the layer says.
    pub fn content<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read(&self.content, &self.name)
    }
}

impl Operation {
    /// Adds the value there, in place of what is there.
    pub fn add(path: impl Into<String>, value: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Add, path: path.into(), value: Some(write(value)?), layer: layer.into() })
    }

    /// Puts the value in place of what is there, which must exist.
    pub fn replace(path: impl Into<String>, value: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Replace, path: path.into(), value: Some(write(value)?), layer: layer.into() })
    }

    /// Adds all elements of a list at the end of the list there, or all members of an object to the object there, which must exist.
    pub fn extend(path: impl Into<String>, values: &impl Serialize, layer: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self { action: Action::Extend, path: path.into(), value: Some(write(values)?), layer: layer.into() })
    }

    /// Takes away what is there, which must exist.
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
