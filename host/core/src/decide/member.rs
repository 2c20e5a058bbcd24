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
    /// Its binding, frozen.
    pub bound: PolicySetPlugin,
    /// Its own description.
    pub description: Description,
    /// Its health under this binding.
    pub health: Arc<Health>,
    /// The previously active member with the same name, for the failure policy `Previous`.
    pub previous: Option<Arc<Member>>,
    identity: Digest,
    control_plane: Option<Plugin>,
    hot: Option<Plugin>,
    conditions: Option<Conditions>,
    missing: Option<String>,
}

/// CEL expressions that must be true before a plugin is called.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The compiled expressions.
    pub program: Program,
    /// Their evaluator.
    pub evaluator: Arc<Evaluator>,
}

impl Member {
    /// Combines the loaded parts.
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

    /// A member whose revision can't be loaded. It stays in the set and fails when it is called: a set without it would silently decide
    /// differently.
    pub fn unloadable(bound: PolicySetPlugin, why: String) -> Self {
        // A binding is plain data and can always be serialized.
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

    /// The same member with these match conditions.
    #[must_use]
    pub fn under(self, conditions: Option<Conditions>) -> Self {
        Self { conditions, ..self }
    }

    /// The match conditions.
    pub fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
    }

    /// Why it can't be loaded, if so.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The same member with another previous one.
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

    /// The same member with new health: its failures don't count against the active one.
    #[must_use]
    pub fn afresh(&self) -> Self {
        let previous = self.previous.as_ref().map(|previous| Arc::new(previous.afresh()));
        Self { health: Arc::default(), ..self.after(previous) }
    }

    /// The name of its PolicyPlugin.
    pub fn name(&self) -> &str {
        &self.bound.name
    }

    /// The digest of everything that determines its answers.
    pub fn identity(&self) -> &Digest {
        &self.identity
    }

    /// Whether it replaces the plugins before it.
    pub fn replaces(&self) -> bool {
        self.bound.mode == PluginMode::Replace
    }

    /// The weight of its scores.
    pub fn weight(&self) -> f64 {
        f64::from(self.bound.weight)
    }

    /// Whether it is the built-in policy of a policy point, which the failure policy `Default` falls back to.
    pub fn is_default(&self, point: PolicyPoint) -> bool {
        self.bound.order == 0 && self.bound.name == name(point)
    }

    /// Whether it is a built-in policy, whose name is reserved.
    pub fn is_builtin(&self) -> bool {
        self.bound.points.iter().any(|point| self.bound.name == name(*point))
    }

    /// Rewords a failure. A built-in policy exceeds its limits only if the spec contains too much, and can't report that itself any more.
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

    /// The plugin, compiled for a use.
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

    /// The features that it wants for a question.
    pub fn features(&self, question: Question) -> &[String] {
        self.description.features(question)
    }
}
