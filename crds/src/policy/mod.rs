//! policy.pointsman.dev: what decides, and what must hold.

pub mod plugin;
pub mod rule;
pub mod selection;
pub mod set;

/// The digest of some bytes as everything in this group writes it.
const DIGEST: &str = "^sha256:[a-f0-9]{64}$";

/// A DNS subdomain: the name of a ConfigMap, or of a cluster-scoped object of ours.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A DNS label: the name of a namespace.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A number of bytes above zero.
const BYTES: &str = "^[1-9][0-9]{0,14}(k|M|G|Ki|Mi|Gi)?$";

/// How long a CEL expression may be, so that what it costs to check one stays bounded.
const EXPRESSION: u64 = 8192;
