//! The configuration of an endpoint picker, read from the `EndpointPickerConfig` of llm-d and of the Gateway API Inference Extension.
//!
//! What has no counterpart is never passed over in silence. A scorer, a producer, a policy or a setting without one is a [`Remark`]: requests
//! still go only where they may, though perhaps to another of these endpoints. What decides where requests may go is an error: filters that a
//! profile uses (and plugins of unknown types there, which may be filters), screeners, profile handlers and the discovery of endpoints. Ignoring
//! one of these would send requests where it allows none.

mod data_layer;
mod fields;
mod flow_control;
mod parameters;
mod plugin_types;
mod plugins;
mod prefix_parameters;
mod profile;
mod reading;
mod scheduling;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod units;
mod yaml;

pub use profile::{
    Decider, Filter, LabelRequirement, LabelRule, Picker, PickerKind, PrefixAffinity, Profile, Profiles, Role, Scorer, ScorerKind,
    SessionAffinity, SessionBinding, SessionSource,
};
pub use session::SESSION_HEADER;
pub use settings::{FlowControl, OutputEstimate, Parser, PrefixSettings, ScrapeSettings};

use crate::flow::saturation::Detector;
use std::fmt;

/// How many bytes a configuration may have.
pub const MAX_TEXT: usize = 256 << 10;

/// How many plugins it may have, and how many a profile may refer to.
pub const MAX_PLUGINS: usize = 256;

/// How many profiles it may have.
pub const MAX_PROFILES: usize = 16;

/// How many priority bands it may have.
pub const MAX_BANDS: usize = 64;

/// How an endpoint picker picks.
#[derive(Clone, Debug, PartialEq)]
pub struct PickerConfig {
    /// Who picks the endpoints of a request.
    pub profiles: Profiles,
    /// Who reads requests: of those that read the longest suffix of a path, the first.
    pub parsers: Vec<Parser>,
    /// How requests wait. Without it none waits, and those of negative priority are refused while the pool is saturated.
    pub flow_control: Option<FlowControl>,
    /// How full a pool is.
    pub saturation: Detector,
    /// How the metrics of endpoints are read.
    pub scrape: ScrapeSettings,
    /// How prefixes are remembered.
    pub prefix: PrefixSettings,
    /// How many tokens of output a request is expected to have; without it only its prompt counts as load.
    pub output_estimate: Option<OutputEstimate>,
}

impl Default for PickerConfig {
    /// Upstream's: queue 2, KV cache 2, prefixes 3, the best score, no flow control.
    fn default() -> Self {
        let weighted = |kind, weight| Scorer { kind, weight };
        let scorers =
            vec![weighted(ScorerKind::Queue, 2.0), weighted(ScorerKind::KvCacheUtilization, 2.0), weighted(ScorerKind::PREFIX_CACHE, 3.0)];
        let profile = Profile { name: "default".to_owned(), filters: Vec::new(), scorers, picker: Picker::default() };
        Self {
            profiles: Profiles::Single(profile),
            parsers: Parser::DEFAULT.to_vec(),
            flow_control: None,
            saturation: Detector::default(),
            scrape: ScrapeSettings::default(),
            prefix: PrefixSettings::default(),
            output_estimate: None,
        }
    }
}

impl PickerConfig {
    /// Reads a configuration, and what of it has no counterpart, in the order of the text. An empty text is the default.
    pub fn read(yaml: &str) -> Result<(Self, Vec<Remark>), ConfigError> {
        if yaml.len() > MAX_TEXT {
            return Err(ConfigError::TooLarge { bytes: yaml.len() });
        }
        if yaml.trim().is_empty() {
            return Ok((Self::default(), Vec::new()));
        }
        reading::read(&yaml::parse(yaml)?)
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
}

impl Default for Place {
    /// The start.
    fn default() -> Self {
        Self { line: 1, column: 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What has no counterpart, or another effect than upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it is.
    pub place: Place,
    /// What it is: its path, and its type if it is a plugin.
    pub subject: String,
    /// What Pointsman does instead, and what to do about it.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.subject, self.message)
    }
}

/// Why a configuration can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is too long.
    #[error("the configuration has {bytes} bytes; the limit is {MAX_TEXT}: shorten it")]
    TooLarge {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The text is not YAML, more than one document, or larger than it looks.
    #[error("{place}: the YAML can't be read: {message}")]
    Yaml {
        /// Where that shows.
        place: Place,
        /// What the parser reports.
        message: String,
    },
    /// A part is wrong, or would have requests sent where they may not go.
    #[error("{place}: {message}")]
    Invalid {
        /// Where the part is.
        place: Place,
        /// What is wrong, and what to do about it.
        message: String,
    },
}

impl ConfigError {
    /// The error without its place, for a configuration that its author hasn't written as text.
    pub fn message(&self) -> String {
        match self {
            Self::TooLarge { .. } => self.to_string(),
            Self::Yaml { message, .. } | Self::Invalid { message, .. } => message.clone(),
        }
    }
}
