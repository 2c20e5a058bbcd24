//! A contender in a simulation: a policy with a configuration.

use crate::{
    endpoint_picker::{custom, decide::Policies, policy::ScoringPolicy},
    load::Loader,
};
use clap::ValueEnum;
use pointsman_picker::config::{Picker, PickerConfig, PickerKind, Profile, Profiles, SESSION_HEADER, Scorer, ScorerKind, SessionBinding};
use std::{path::Path, sync::Arc};

/// The built-in contenders for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BuiltIn {
    /// The scorers of a picker without a configuration: queue 2, KV cache 2, prefixes 3
    Default,
    /// Each endpoint in turn
    RoundRobin,
    /// The endpoint that has reported the shortest queue
    LeastQueue,
    /// Any endpoint
    Random,
}

impl BuiltIn {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::RoundRobin => "round-robin",
            Self::LeastQueue => "least-queue",
            Self::Random => "random",
        }
    }

    /// The profile with this contender's scorers and picker; the filters stay.
    fn profile(self, profile: &Profile) -> Profile {
        let shortest = vec![Scorer { kind: ScorerKind::Queue, weight: 1.0 }];
        let (scorers, kind) = match self {
            Self::Default => (PickerConfig::default().profiles.primary().scorers.clone(), PickerKind::MaxScore),
            Self::LeastQueue | Self::RoundRobin => (shortest, PickerKind::MaxScore),
            Self::Random => (shortest, PickerKind::Random),
        };
        Profile { scorers, picker: Picker { kind, ..Picker::default() }, ..profile.clone() }
    }
}

/// A contender.
#[derive(Debug)]
pub struct Contender {
    pub(super) name: String,
    pub(super) config: PickerConfig,
    pub(super) policies: Policies,
    /// Whether endpoints alternate, regardless of their scores.
    pub(super) rotates: bool,
}

impl Contender {
    /// A built-in contender, with all of a configuration except its scorers. Blocks while it is compiled.
    pub fn built_in(loader: &Loader, which: BuiltIn, config: &PickerConfig) -> Result<Self, String> {
        let profile = which.profile(config.profiles.primary());
        let config = PickerConfig { profiles: Profiles::Single(profile), ..config.clone() };
        let configured = Self::configured(loader, which.name(), &config)?;
        Ok(Self { rotates: which == BuiltIn::RoundRobin, ..configured })
    }

    /// The scorers of a configuration. Blocks while they are compiled.
    pub fn configured(loader: &Loader, name: &str, config: &PickerConfig) -> Result<Self, String> {
        // The chosen endpoint also prefills.
        let profile = config.profiles.primary();
        let config = PickerConfig { profiles: Profiles::Single(profile.clone()), ..config.clone() };
        let primary = ScoringPolicy::of_profile(loader, profile).map_err(|error| format!("loading the default policy: {error}"))?;
        let policies = Policies { custom: None, set: None, primary: Arc::new(primary), prefill: None };
        Ok(Self { name: name.to_owned(), config, policies, rotates: false })
    }

    /// The policy of a file, which takes precedence over the scorers of a configuration. Blocks while it is compiled.
    pub fn custom(
        loader: &Loader,
        name: &str,
        (file, policy_config): (&Path, Option<&Path>),
        config: &PickerConfig,
    ) -> Result<Self, String> {
        let custom = custom::load(loader, file, policy_config)?;
        let configured = Self::configured(loader, name, config)?;
        Ok(Self { policies: Policies { custom: Some(Arc::new(custom)), ..configured.policies }, ..configured })
    }

    /// Whether responses have the header that returns a client to the same endpoint.
    pub(super) fn has_sessions(&self) -> bool {
        self.config.profiles.primary().scorers.iter().any(|scorer| match &scorer.kind {
            ScorerKind::SessionAffinity(affinity) => {
                matches!(&affinity.binding, SessionBinding::Token { header } if header == SESSION_HEADER)
            }
            _ => false,
        })
    }
}
