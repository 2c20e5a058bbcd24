//! Short ways to read and change a pod template.

use crate::{
    Failure,
    bindings::exports::pointsman::policy::pod_templating::{Action, Layer, Operation, Request},
};
use serde::{Serialize, de::DeserializeOwned};

impl Request {
    /// The template so far.
    pub fn template<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read(&self.template, "the template")
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

    /// Takes away what is there, which must exist.
    pub fn remove(path: impl Into<String>, layer: impl Into<String>) -> Self {
        Self { action: Action::Remove, path: path.into(), value: None, layer: layer.into() }
    }
}

fn read<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| Failure { message: format!("{what} can't be read: {error}") })
}

fn write(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure { message: format!("a value can't be written as JSON: {error}") })
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
