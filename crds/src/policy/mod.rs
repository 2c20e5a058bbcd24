//! policy.pointsman.dev: plugins, rules and policy sets.

pub mod plugin;
pub mod rule;
pub mod selection;
pub mod set;

/// The format of digests in this group.
const DIGEST: &str = "^sha256:[a-f0-9]{64}$";

/// A DNS subdomain: the name of a ConfigMap, or of one of our cluster-scoped objects.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A DNS label: the name of a namespace.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A number of bytes above zero.
const BYTES: &str = "^[1-9][0-9]{0,14}(k|M|G|Ki|Mi|Gi)?$";

/// The maximum length of a CEL expression. It limits the cost of checking one.
const EXPRESSION: u64 = 8192;
