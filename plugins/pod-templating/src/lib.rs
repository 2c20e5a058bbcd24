//! The default policy at pod-templating. Until it merges the layers, it leaves the template as the host made it.

use pointsman_plugin::{
    Failure, NoConfig,
    pod_templating::{Answer, Request},
    reason,
};

/// Takes no step, and says so.
#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn template(_: &NoConfig, _: Request) -> Result<Answer, Failure> {
    Ok(Answer { operations: Vec::new(), reasons: vec![reason("Unchanged", "The template stays as the host made it.")] })
}

pointsman_plugin::export! { pod_templating: template }
