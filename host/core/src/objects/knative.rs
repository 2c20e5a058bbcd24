//! A Knative Service, and what Knative takes of a pod.

mod fit;

pub use fit::{Fitted, fit};

use super::Metadata;
use serde_json::{Value, json};

/// The longest name of a revision whose service takes the tag `prev-`: `-00001` comes behind the service's.
const LONGEST_TAGGED: usize = 63 - 5 + 6;

/// What is asked of each replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScalingRequest {
    /// How many requests a replica works on at once.
    pub concurrency: Option<i64>,
    /// How long a request may take, in seconds.
    pub seconds: Option<i64>,
}

/// The template of a revision: that of its pods, and what is asked of it.
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

/// A Knative Service's body. A canary is the share of the traffic that the newest revision gets, in percent, and the revision that gets the
/// rest.
pub fn service(metadata: Metadata, template: &Value, canary: Option<&(i64, String)>) -> Value {
    let traffic = match canary {
        Some((percent, rest)) => {
            let mut former = json!({"revisionName": rest, "latestRevision": false, "percent": 100 - percent});
            // The tag becomes a host name, of 63 characters at most, before that of the service, which the revision's begins with.
            if rest.len() <= LONGEST_TAGGED {
                former["tag"] = "prev".into();
            }
            json!([{"latestRevision": true, "percent": percent}, former])
        }
        None => json!([{"latestRevision": true, "percent": 100}]),
    };
    json!({"metadata": metadata.into_value(), "spec": {"template": template, "traffic": traffic}})
}
