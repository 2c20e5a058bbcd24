//! The configuration of an endpoint picker, parsed from the `EndpointPickerConfig` of llm-d and of the Gateway API Inference Extension.
//!
//! Nothing without a counterpart is silently ignored. For a scorer, a producer, a policy or a setting there is a [`Remark`]: requests still
//! go only to allowed endpoints, but perhaps to a different one of them. A part that restricts the allowed endpoints is an error: filters
//! that a profile uses (and plugins of unknown types there, which may be filters), screeners, profile handlers and the discovery of
//! endpoints. If such a part were ignored, requests could go to forbidden endpoints.

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

/// The maximum size of a configuration, in bytes.
pub const MAX_TEXT: usize = 256 << 10;

/// The maximum number of plugins, and of references in a profile.
pub const MAX_PLUGINS: usize = 256;

/// The maximum number of profiles.
pub const MAX_PROFILES: usize = 16;

/// The maximum number of priority bands.
pub const MAX_BANDS: usize = 64;

/// The configuration of an endpoint picker.
#[derive(Clone, Debug, PartialEq)]
pub struct PickerConfig {
    /// The profiles that pick the endpoints of a request.
    pub profiles: Profiles,
    /// The parsers of requests. The one with the longest matching suffix of the path is used; of equal ones, the first.
    pub parsers: Vec<Parser>,
    /// The settings of the queue. Without it, no request is queued, and requests of negative priority are refused while the pool is
    /// saturated.
    pub flow_control: Option<FlowControl>,
    /// The measure of a pool's saturation.
    pub saturation: Detector,
    /// The settings for the metrics of endpoints.
    pub scrape: ScrapeSettings,
    /// The settings for remembered prefixes.
    pub prefix: PrefixSettings,
    /// The expected output of a request, in tokens; without it, only its prompt is load.
    pub output_estimate: Option<OutputEstimate>,
}

impl Default for PickerConfig {
    /// Upstream's defaults: queue 2, KV cache 2, prefixes 3, the highest score, no flow control.
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
    /// Parses a configuration. Returns it with remarks on the parts without a counterpart, in the order of the text. An empty text is the
    /// default.
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

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line, starting at 1.
    pub line: u64,
    /// The column, starting at 1.
    pub column: u64,
}

impl Default for Place {
    /// The start of the text.
    fn default() -> Self {
        Self { line: 1, column: 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A part that has no counterpart, or has another effect than upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its position.
    pub place: Place,
    /// The part: its path, and its type if it is a plugin.
    pub subject: String,
    /// What Pointsman does instead, and the remedy.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.subject, self.message)
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is too long.
    #[error("the configuration has {bytes} bytes; the limit is {MAX_TEXT}: shorten it")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The text isn't YAML, has more than one document, or expands to too much data.
    #[error("{place}: the YAML can't be read: {message}")]
    Yaml {
        /// The position of the error.
        place: Place,
        /// The parser's message.
        message: String,
    },
    /// A part is invalid, or would send requests to forbidden endpoints.
    #[error("{place}: {message}")]
    Invalid {
        /// Its position.
        place: Place,
        /// The problem and the remedy.
        message: String,
    },
}

impl ConfigError {
    /// The error without its position, for a configuration that wasn't written as text.
    pub fn message(&self) -> String {
        match self {
            Self::TooLarge { .. } => self.to_string(),
            Self::Yaml { message, .. } | Self::Invalid { message, .. } => message.clone(),
        }
    }
}
