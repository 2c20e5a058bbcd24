//! Installs our CustomResourceDefinitions in a cluster if they are missing, and never over somebody else's.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::{Condition, await_condition, conditions::is_crd_established},
};
use pointsman_crds::{Comparison, compare};
use std::{fmt, time::Duration};

/// The field manager under which we apply them.
pub const FIELD_MANAGER: &str = "pointsman/crds";

/// The time that the API server gets to serve a new kind.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A step of the installation of one CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStep {
    /// The CRD is compared with ours.
    Compare,
    /// The CRD is compared with ours, and applied if it differs.
    Apply,
    /// The API server has the CRD but doesn't serve its kind yet.
    AwaitEstablished,
}

impl InstallStep {
    /// The step for the CRD of a kind, as text.
    pub fn describe(self, kind: &str) -> String {
        match self {
            Self::Compare => format!("comparing the CRD of {kind}"),
            Self::Apply => format!("applying the CRD of {kind}"),
            Self::AwaitEstablished => format!("waiting until the CRD of {kind} is Established"),
        }
    }
}

/// The outcome for one CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was missing and is now installed.
    Installed,
    /// It was an older one of ours and is now up to date.
    Updated,
    /// It is ours and up to date.
    Unchanged,
    /// It is ours and differs; nothing was written.
    Outdated(Comparison),
    /// It is missing; nothing was written.
    Missing,
    /// Somebody else installed it: compared and left unchanged.
    Foreign(Comparison),
}

impl Outcome {
    /// The outcome's name in a count.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Outdated(_) => "outdated",
            Self::Missing => "missing",
            Self::Foreign(_) => "not managed",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed => write!(f, "installed"),
            Self::Updated => write!(f, "updated"),
            Self::Unchanged => write!(f, "unchanged"),
            Self::Outdated(_) => write!(f, "outdated: run `pointsman crds install`"),
            Self::Missing => write!(f, "missing: run `pointsman crds install`"),
            Self::Foreign(comparison) => write!(f, "not managed, stays unchanged: {comparison}"),
        }
    }
}

/// Why the installation of a CRD failed.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The API server refused the request or didn't respond.
    #[error("{0}")]
    Kube(#[from] kube::Error),
    /// The API server accepted the CRD but doesn't serve the kind.
    #[error("the API server doesn't serve the kind after {} s: run `kubectl describe crd {name}`", ESTABLISH_TIMEOUT.as_secs())]
    NotEstablished {
        /// The CRD's name.
        name: String,
    },
    /// The wait for the kind failed.
    #[error("watching until the kind is served: {0}")]
    Watch(#[from] kube::runtime::wait::Error),
}

/// Brings one CRD up to date or, if `write` is false, reports the difference. Calls `on_step` before each step.
pub async fn install(
    client: &Client,
    crd: &CustomResourceDefinition,
    write: bool,
    on_step: &(dyn Fn(InstallStep) + Sync),
) -> Result<Outcome, CrdError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    on_step(if write { InstallStep::Apply } else { InstallStep::Compare });
    let (outcome, established) = match api.get_opt(&name).await? {
        None if !write => (Outcome::Missing, true),
        None => (create(&api, crd).await?, false),
        Some(found) => {
            let established = is_crd_established().matches_object(Some(&found));
            match standing(crd, &found) {
                Outcome::Outdated(_) if write => {
                    // Client-side apply would keep a copy in an annotation, which is too small for these schemas.
                    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(crd)).await?;
                    (Outcome::Updated, established)
                }
                outcome => (outcome, established),
            }
        }
    };
    if !established && matches!(outcome, Outcome::Installed | Outcome::Updated | Outcome::Unchanged) {
        on_step(InstallStep::AwaitEstablished);
        let established = await_condition(api, &name, is_crd_established());
        tokio::time::timeout(ESTABLISH_TIMEOUT, established).await.map_err(|_| CrdError::NotEstablished { name })??;
    }
    Ok(outcome)
}

/// Not forced: if somebody installs their own CRD at the same moment, theirs stays.
async fn create(api: &Api<CustomResourceDefinition>, crd: &CustomResourceDefinition) -> Result<Outcome, CrdError> {
    let name = crd.name_any();
    match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(crd)).await {
        Ok(_) => Ok(Outcome::Installed),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(standing(crd, &api.get(&name).await?)),
        Err(error) => Err(error.into()),
    }
}

/// How an installed CRD relates to ours.
pub(crate) fn standing(crd: &CustomResourceDefinition, found: &CustomResourceDefinition) -> Outcome {
    if !is_ours(found) {
        Outcome::Foreign(compare(crd, found))
    } else if same(crd, found) {
        Outcome::Unchanged
    } else {
        Outcome::Outdated(compare(crd, found))
    }
}

/// Whether the CRD's label marks it as ours. If our files were applied with kubectl, the field manager is another one.
pub(crate) fn is_labelled_ours(crd: &CustomResourceDefinition) -> bool {
    crd.labels().get("app.kubernetes.io/managed-by").is_some_and(|manager| manager == "pointsman")
}

/// A CRD is ours if we are the only writer of its spec.
fn is_ours(crd: &CustomResourceDefinition) -> bool {
    let mut writers = crd
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.subresource.is_none() && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some()));
    let mut any = false;
    writers.all(|entry| {
        any = true;
        entry.manager.as_deref() == Some(FIELD_MANAGER)
    }) && any
}

/// Whether both differ only in the API server's defaults.
fn same(ours: &CustomResourceDefinition, found: &CustomResourceDefinition) -> bool {
    let mut found = found.spec.clone();
    found.names.list_kind.clone_from(&ours.spec.names.list_kind);
    found.conversion.clone_from(&ours.spec.conversion);
    found.preserve_unknown_fields = ours.spec.preserve_unknown_fields;
    found == ours.spec
}
