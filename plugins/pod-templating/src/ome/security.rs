//! Kubernetes' Pod Security Standards: fields of layers that a standard forbids are rejected, and fields that it requires are set.
//!
//! Whether a namespace enforces a standard isn't decided here. This module creates a pod that the namespace accepts, or an error if there
//! is none.

use crate::{
    node::{By, Form, Node},
    pod::Pod,
};
use pointsman_plugin::{Failure, Reason, reason};
use serde_json::Value;

/// A standard with restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standard {
    Baseline,
    Restricted,
}

/// The capabilities that a container may add under baseline.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The kernel settings that are local to a pod.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// The volume sources that restricted allows.
const VOLUMES: [&str; 9] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];

const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

const PROFILES: [&str; 2] = ["RuntimeDefault", "Localhost"];

/// The handlers that may contain a host.
const HANDLERS: [&[&str]; 5] =
    [&["livenessProbe"], &["readinessProbe"], &["startupProbe"], &["lifecycle", "postStart"], &["lifecycle", "preStop"]];

impl Standard {
    /// Rejects fields that the standard forbids, and sets those that it requires.
    pub(super) fn keep<'a>(self, pod: &mut Pod<'a>, by: By<'a>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        // In a user namespace, root has no privileges outside of it.
        let own_users = pod.spec.get("hostUsers").and_then(Node::scalar).and_then(Value::as_bool) == Some(false);
        Check { standard: self, own_users }.pod(&pod.spec)?;
        if self == Self::Restricted {
            restrict(pod, own_users, by);
        }
        if pod.spec.items_at("volumes").iter().filter_map(|volume| volume.get("hostPath")).any(is_our_own) {
            let message = format!(
                "The node's folder is mounted as a hostPath volume, which a namespace that enforces {} rejects: move the files to a claim, \
                 and set pvc://CLAIM/PATH.",
                self.name()
            );
            reasons.push(reason("ModelVolumeStays", message));
        }
        Ok(())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Whether this policy has added the node, not a layer.
fn is_our_own(node: &Node<'_>) -> bool {
    node.by.rank == usize::MAX
}

struct Check {
    standard: Standard,
    own_users: bool,
}

impl Check {
    fn pod(&self, spec: &Node<'_>) -> Result<(), Failure> {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            self.look(spec, &[field], "spec", is_false)?;
        }
        for volume in spec.items_at("volumes") {
            self.volume(volume)?;
        }
        if let Some(context) = spec.get("securityContext") {
            self.context(context, "spec.securityContext")?;
            for sysctl in context.items_at("sysctls") {
                self.look(sysctl, &["name"], "spec.securityContext.sysctls", |name| is_one_of(name, &SYSCTLS))?;
            }
        }
        for field in ["initContainers", "containers"] {
            for container in spec.items_at(field) {
                let name = container.text_at("name").unwrap_or_default();
                self.container(container, &format!("spec.{field}[name={name}]"))?;
            }
        }
        Ok(())
    }

    fn volume(&self, volume: &Node<'_>) -> Result<(), Failure> {
        let sources = volume.fields().into_iter().flatten().filter(|(field, _)| *field != "name");
        for (source, node) in sources.filter(|(_, node)| !is_our_own(node)) {
            let allowed = match self.standard {
                Standard::Baseline => source != "hostPath",
                Standard::Restricted => VOLUMES.contains(&source.as_str()),
            };
            if !allowed {
                let name = volume.text_at("name").unwrap_or_default();
                return Err(self.refused(&format!("spec.volumes[name={name}].{source}"), node));
            }
        }
        Ok(())
    }

    fn container(&self, container: &Node<'_>, at: &str) -> Result<(), Failure> {
        for port in container.items_at("ports") {
            self.look(port, &["hostPort"], &format!("{at}.ports"), |port| port.as_i64() == Some(0))?;
        }
        for handler in HANDLERS {
            for does in ["httpGet", "tcpSocket"] {
                self.look(container, &[handler, &[does, "host"]].concat(), at, |host| host == "")?;
            }
        }
        let Some(context) = container.get("securityContext") else { return Ok(()) };
        let at = format!("{at}.securityContext");
        self.context(context, &at)?;
        self.look(context, &["privileged"], &at, is_false)?;
        if self.restricted() {
            self.look(context, &["allowPrivilegeEscalation"], &at, is_false)?;
        }
        if self.restricted() || !self.own_users {
            self.look(context, &["procMount"], &at, |mount| is_one_of(mount, &["", "Default"]))?;
        }
        let allowed = if self.restricted() { &["NET_BIND_SERVICE"][..] } else { &CAPABILITIES };
        for added in context.get("capabilities").map_or(&[][..], |capabilities| capabilities.items_at("add")) {
            self.look(added, &[], &format!("{at}.capabilities.add"), |capability| is_one_of(capability, allowed))?;
        }
        Ok(())
    }

    /// Checks the fields that the security contexts of pods and of containers share.
    fn context(&self, context: &Node<'_>, at: &str) -> Result<(), Failure> {
        for profile in ["seccompProfile", "appArmorProfile"] {
            self.look(context, &[profile, "type"], at, |profile| is_one_of(profile, &PROFILES))?;
        }
        self.look(context, &["seLinuxOptions", "type"], at, |kind| is_one_of(kind, &SELINUX_TYPES))?;
        for option in ["user", "role"] {
            self.look(context, &["seLinuxOptions", option], at, |text| text == "")?;
        }
        self.look(context, &["windowsOptions", "hostProcess"], at, is_false)?;
        if self.restricted() && !self.own_users {
            self.look(context, &["runAsNonRoot"], at, |non_root| *non_root == Value::Bool(true))?;
            self.look(context, &["runAsUser"], at, |user| user.as_i64() != Some(0))?;
        }
        Ok(())
    }

    fn restricted(&self) -> bool {
        self.standard == Standard::Restricted
    }

    /// Rejects the value at the path below the node, unless it is allowed.
    fn look(&self, node: &Node<'_>, way: &[&str], at: &str, allowed: impl Fn(&Value) -> bool) -> Result<(), Failure> {
        let found = way.iter().try_fold(node, |node, step| node.get(step));
        match found.and_then(|found| Some((found, found.scalar()?))) {
            Some((found, value)) if !allowed(value) => {
                let place: Vec<_> = [at].iter().chain(way).copied().collect();
                Err(self.refused(&place.join("."), found))
            }
            _ => Ok(()),
        }
    }

    fn refused(&self, place: &str, node: &Node<'_>) -> Failure {
        let said = serde_json::to_string(node).unwrap_or_default();
        Failure::refusal(format!(
            "the Pod Security Standard {} forbids {place}: {said}, set by the layer {}: remove it there, or set a weaker standard in the \
             annotation security.ome.io/pod-security-policy",
            self.standard.name(),
            node.strongest().layer
        ))
    }
}

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn is_one_of(value: &Value, allowed: &[&str]) -> bool {
    value.as_str().is_some_and(|text| allowed.contains(&text))
}

/// Sets the fields that restricted requires.
fn restrict<'a>(pod: &mut Pod<'a>, own_users: bool, by: By<'a>) {
    let no = || Node { by, form: Form::Scalar(false.into()) };
    if let Some(context) = pod.spec.object_at("securityContext", by) {
        if !own_users {
            fill(context, "runAsNonRoot", Node { by, form: Form::Scalar(true.into()) });
        }
        fill(context, "seccompProfile", Node::object([("type", Node::text("RuntimeDefault", by))], by));
    }
    for field in ["initContainers", "containers"] {
        let containers = pod.spec.fields_mut().and_then(|spec| spec.get_mut(field)?.items_mut());
        for container in containers.into_iter().flatten() {
            let Some(context) = container.object_at("securityContext", by) else { continue };
            fill(context, "allowPrivilegeEscalation", no());
            let Some(dropped) = context.object_at("capabilities", by).and_then(|capabilities| capabilities.list_at("drop", by)) else {
                continue;
            };
            if !dropped.iter().any(|capability| capability.as_str() == Some("ALL")) {
                dropped.push(Node::text("ALL", by));
            }
        }
    }
}

fn fill<'a>(node: &mut Node<'a>, field: &str, value: Node<'a>) {
    if node.get(field).is_none() {
        node.set(field, value);
    }
}
