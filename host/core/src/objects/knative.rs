//! A Knative Service, and the pod specs that Knative accepts.

mod fit;

pub use fit::{Fitted, fit};

use super::Metadata;
use serde_json::{Value, json};

/// The maximum length of a revision's name for which its service can have the tag `prev-`: the revision's name is the service's with the
/// suffix `-00001`.
const LONGEST_TAGGED: usize = 63 - 5 + 6;

/// The limits for requests to a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScalingRequest {
    /// The maximum number of concurrent requests.
    pub concurrency: Option<i64>,
    /// The maximum duration of a request, in seconds.
    pub seconds: Option<i64>,
}

/// The template of a revision: that of its pods, with the limits for requests.
pub fn template(pods: &Value, asked: ScalingRequest) -> Value {
    let mut template = pods.clone();
    if let Some(concurrency) = asked.concurrency {
        template["spec"]["containerConcurrency"] = concurrency.into();
    }
    if let Some(seconds) = asked.seconds {
        template["spec"]["timeoutSeconds"] = seconds.into();
    }
    template
}

/// A Knative Service's body. A canary is the traffic share of the latest revision, in percent, and the revision that gets the rest.
pub fn service(metadata: Metadata, template: &Value, canary: Option<&(i64, String)>) -> Value {
    let traffic = match canary {
        Some((percent, rest)) => {
            let mut former = json!({"revisionName": rest, "latestRevision": false, "percent": 100 - percent});
            // The tag becomes a prefix of the service's host name, whose first label has at most 63 characters; the revision's name starts
            // with the service's.
            if rest.len() <= LONGEST_TAGGED {
                former["tag"] = "prev".into();
            }
            json!([{"latestRevision": true, "percent": percent}, former])
        }
        None => json!([{"latestRevision": true, "percent": 100}]),
    };
    json!({"metadata": metadata.into_value(), "spec": {"template": template, "traffic": traffic}})
}
