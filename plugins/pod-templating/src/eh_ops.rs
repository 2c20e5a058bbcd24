//! The pods of an eh-ops InferenceModel: as in its object, without additions. The host has already converted its fields to a pod.

use crate::{Config, pod::Pod, rules::Rules};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};

pub(crate) static RULES: Rules = Rules { main: "inference", lenient: false, speaks, no_image, finish };

fn speaks(layer: &str, _: Role) -> bool {
    layer == "user"
}

#[allow(clippy::unnecessary_wraps, reason = "it has the form that all rules have")]
fn finish(_: &Config, _: &Request, _: &mut Pod<'_>, _: &mut Vec<Reason>) -> Result<(), Failure> {
    Ok(())
}

fn no_image(_: &Request, container: &str) -> String {
    format!("the container {container} has no image: set spec.containerImage")
}
