//! A plugin as part of a policy set: loaded, bound to policy points, configured.

use super::health::Health;
use crate::point::name;
use pointsman_crds::policy::plugin::{PluginMode, PolicyPoint};
use pointsman_crds::policy::set::PolicySetPlugin;
use pointsman_sandbox::{
    call::CallError,
    digest::Digest,
    engine::Use,
    evaluator::{Evaluator, Program},
    plugin::Plugin,
    point::{Question, describe::Description},
};
use std::sync::Arc;

/// A plugin in a policy set.
#[derive(Debug)]
pub struct Member {
    /// How it is bound, frozen.
    pub bound: PolicySetPlugin,
    /// What it says of itself.
    pub description: Description,
    /// How it fares since it is bound so.
    pub health: Arc<Health>,
    /// What decided before it under the same name, for the failure policy `Previous`.
    pub previous: Option<Arc<Member>>,
    identity: Digest,
    control_plane: Option<Plugin>,
    hot: Option<Plugin>,
    conditions: Option<Conditions>,
    missing: Option<String>,
}

/// CEL expressions that must be true for a plugin to be asked.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// All of them.
    pub program: Program,
    /// What evaluates them.
    pub evaluator: Arc<Evaluator>,
}

impl Member {
    /// Puts together what was loaded.
    pub fn new(
        bound: PolicySetPlugin,
        description: Description,
        control_plane: Option<Plugin>,
        hot: Option<Plugin>,
    ) -> serde_json::Result<Self> {
        let identity = Digest::of_value(&bound)?;
        Ok(Self {
            bound,
            description,
            health: Arc::default(),
            previous: None,
            identity,
            control_plane,
            hot,
            conditions: None,
            missing: None,
        })
    }

    /// One whose revision can't be loaded. It keeps its place in the set and fails when it is asked: a set without it would decide
    /// otherwise, and say nothing.
    pub fn unloadable(bound: PolicySetPlugin, why: String) -> Self {
        // A binding is plain data, which always has JSON.
        let identity = Digest::of_value(&bound).unwrap_or(Digest([0; 32]));
        Self {
            bound,
            description: Description::default(),
            health: Arc::default(),
            previous: None,
            identity,
            control_plane: None,
            hot: None,
            conditions: None,
            missing: Some(why),
        }
    }

    /// The same member, asked under these conditions alone.
    #[must_use]
    pub fn under(self, conditions: Option<Conditions>) -> Self {
        Self { conditions, ..self }
    }

    /// The conditions under which alone it is asked.
    pub fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
    }

    /// Why it can't be asked, where it can't be loaded.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The same member with another one to fall back to.
    #[must_use]
    pub fn after(&self, previous: Option<Arc<Self>>) -> Self {
        Self {
            bound: self.bound.clone(),
            description: self.description.clone(),
            health: Arc::clone(&self.health),
            previous,
            identity: self.identity,
            control_plane: self.control_plane.clone(),
            hot: self.hot.clone(),
            conditions: self.conditions.clone(),
            missing: self.missing.clone(),
        }
    }

    /// The same member, which hasn't been asked anything yet: what it does from now on isn't held against the one that decides.
    #[must_use]
    pub fn afresh(&self) -> Self {
        let previous = self.previous.as_ref().map(|previous| Arc::new(previous.afresh()));
        Self { health: Arc::default(), ..self.after(previous) }
    }

    /// The name of its PolicyPlugin.
    pub fn name(&self) -> &str {
        &self.bound.name
    }

    /// The digest of all that makes its answers what they are.
    pub fn identity(&self) -> &Digest {
        &self.identity
    }

    /// Whether plugins before it aren't asked.
    pub fn replaces(&self) -> bool {
        self.bound.mode == PluginMode::Replace
    }

    /// How much its scores count.
    pub fn weight(&self) -> f64 {
        f64::from(self.bound.weight)
    }

    /// Whether it is the built-in that stands in at a policy point.
    pub fn is_default(&self, point: PolicyPoint) -> bool {
        self.bound.order == 0 && self.bound.name == name(point)
    }

    /// Whether it is one of those that the host brings, whose names are reserved.
    pub fn is_builtin(&self) -> bool {
        self.bound.points.iter().any(|point| self.bound.name == name(*point))
    }

    /// What its failure is. A built-in policy reaches its bounds only where somebody specifies too much: it can't say so itself any more.
    pub(super) fn excuse(&self, error: CallError) -> CallError {
        let bound = match &error {
            CallError::Fuel(fuel) => format!("a policy would need more than {fuel} units of fuel"),
            CallError::Memory(bytes) => format!("a policy would need more than {} MiB of memory", bytes >> 20),
            CallError::Output(bytes) => format!("the answer would be larger than {} KiB", bytes >> 10),
            CallError::TooLarge(bound) => bound.clone(),
            _ => return error,
        };
        if !self.is_builtin() {
            return error;
        }
        CallError::Failed(format!(
            "the service is too large: {bound}; specify fewer containers, variables, volumes, adapters or annotations"
        ))
    }

    /// The plugin, for a use.
    pub fn plugin(&self, use_: Use) -> Result<&Plugin, CallError> {
        if let Some(why) = &self.missing {
            return Err(CallError::Instantiate(why.clone()));
        }
        let plugin = match use_ {
            Use::ControlPlane => &self.control_plane,
            Use::Hot => &self.hot,
        };
        plugin.as_ref().ok_or(CallError::NotAnswered(match use_ {
            Use::ControlPlane => "of any control-plane point",
            Use::Hot => "scheduling-scoring",
        }))
    }

    /// The columns that it wants for a question.
    pub fn features(&self, question: Question) -> &[String] {
        self.description.features(question)
    }
}
