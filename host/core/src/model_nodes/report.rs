//! An agent's report on the models of its node: a ConfigMap with the node's name, and one key per model. The JSON is that of OME's agent;
//! `message` is ours.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// The label of agents' ConfigMaps; its value is `true`.
pub const CONFIG_MAP: &str = "models.ome/basemodel-status";

/// The annotation of such a ConfigMap with the node's name.
pub const NODE_NAME: &str = "models.ome.io/node-name";

/// The annotation of such a ConfigMap with its writer.
pub const MANAGED_BY: &str = "models.ome.io/managed-by";

/// The value of [`MANAGED_BY`].
pub const AGENT: &str = "model-agent";

/// The maximum length of a message that is read.
const MAX_MESSAGE: usize = 1024;

/// The state of a model on a node. The node's label has the same value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// Its files are complete and verified.
    Ready,
    /// The download failed.
    Failed,
    /// They were deleted.
    Deleted,
    /// They are being downloaded. Unknown states of later agents count as this one.
    #[default]
    #[serde(other)]
    Updating,
}

impl NodeState {
    /// The value in the label and the ConfigMap.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Updating => "Updating",
            Self::Failed => "Failed",
            Self::Deleted => "Deleted",
        }
    }
}

/// The progress of a download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownloadProgress {
    /// The current phase.
    pub phase: String,
    /// The total size of all files, in bytes.
    pub total_bytes: u64,
    /// The number of bytes that are downloaded.
    pub completed_bytes: u64,
    /// The total number of files.
    pub total_files: u64,
    /// The number of files that are downloaded.
    pub completed_files: u64,
    /// The current speed.
    pub speed_bytes_per_sec: f64,
    /// The time of this progress, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}

impl DownloadProgress {
    /// The completed share, from 0 to 100; none if the size is unknown.
    pub fn percent(&self) -> Option<u64> {
        let percent = u128::from(self.completed_bytes.min(self.total_bytes)) * 100 / u128::from(self.total_bytes).max(1);
        (self.total_bytes > 0).then_some(u64::try_from(percent).unwrap_or(100))
    }

    /// The remaining seconds at the current speed.
    pub fn seconds_left(&self) -> Option<u64> {
        let left = self.total_bytes.saturating_sub(self.completed_bytes);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a float's cast saturates")]
        (self.speed_bytes_per_sec >= 1.0 && left > 0).then(|| (left as f64 / self.speed_bytes_per_sec).ceil() as u64)
    }
}

/// An agent's report on one model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelReport {
    /// The model's name.
    pub name: String,
    /// Its state.
    pub status: NodeState,
    /// The facts in its files: fields of a BaseModel's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Box<RawValue>>,
    /// The progress of its download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<DownloadProgress>,
    /// Why it has failed or waits: a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ModelReport {
    /// Parses a report. An unreadable one counts as failed, with a message.
    pub fn parse(text: &str) -> Self {
        let mut report = serde_json::from_str(text).unwrap_or_else(|error| Self {
            status: NodeState::Failed,
            message: Some(format!("the agent's report can't be read: {error}")),
            ..Self::default()
        });
        if let Some(message) = &mut report.message
            && message.len() > MAX_MESSAGE
        {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            message.push('…');
        }
        report
    }

    /// The facts in the files, if they are a JSON object.
    pub fn facts(&self) -> Option<Value> {
        self.config.as_ref().and_then(|config| serde_json::from_str(config.get()).ok()).filter(Value::is_object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_upstream_s_agent_writes_is_read() {
        let text = json!({
            "name": "llama", "status": "Updating",
            "config": {"modelType": "llama", "artifact": {"sha": "", "parentPath": {}, "childrenPaths": null}},
            "progress": {"phase": "Downloading", "totalBytes": 1000, "completedBytes": 250, "totalFiles": 4, "completedFiles": 1, "speedBytesPerSec": 12.5, "lastUpdated": "2026-05-01T00:00:00Z"},
        });
        let report = ModelReport::parse(&text.to_string());
        let progress = report.progress.clone().unwrap();
        assert_eq!((report.status, progress.percent(), progress.seconds_left()), (NodeState::Updating, Some(25), Some(60)));
        assert_eq!(report.facts().unwrap()["modelType"], "llama");
        assert_eq!(serde_json::to_value(&report).unwrap(), text);
    }

    #[test]
    fn what_is_unknown_or_broken_is_neither_ready_nor_lost() {
        assert_eq!(ModelReport::parse(r#"{"status": "Verifying"}"#).status, NodeState::Updating);
        let broken = ModelReport::parse("{");
        assert!(broken.status == NodeState::Failed && broken.message.unwrap().starts_with("the agent's report can't be read"));
        let long = ModelReport::parse(&json!({"status": "Failed", "message": "ä".repeat(4000)}).to_string());
        assert!(long.message.unwrap().len() <= MAX_MESSAGE + '…'.len_utf8());
    }

    #[test]
    fn progress_of_nothing_is_none() {
        let progress = |total_bytes, completed_bytes, speed_bytes_per_sec| {
            let progress = DownloadProgress { total_bytes, completed_bytes, speed_bytes_per_sec, ..DownloadProgress::default() };
            (progress.percent(), progress.seconds_left())
        };
        assert_eq!(progress(0, 0, 5.0), (None, None));
        assert_eq!(progress(10, 20, 5.0), (Some(100), None));
        assert_eq!(progress(u64::MAX, 1, f64::NAN), (Some(0), None));
        assert_eq!(progress(10, 5, 0.0), (Some(50), None));
    }
}
