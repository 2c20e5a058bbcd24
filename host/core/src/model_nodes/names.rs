//! The names by which agents, pods and controllers identify a model on a node: identical to those of OME's agent, so that the tools of both
//! are compatible.

use pointsman_sandbox::digest::Digest;

/// The prefix of the nodes' labels.
const LABEL_PREFIX: &str = "models.ome.io/";

/// The maximum length of the label's name.
const MAX_LABEL: usize = 49;

/// The maximum length of a key in a ConfigMap.
const MAX_KEY: usize = 253;

/// The minimum length of a shortened namespace.
const MIN_NAMESPACE: usize = 8;

/// The number of SHA-256 digits that replace the omitted part.
const DIGITS: usize = 8;

/// The label of the nodes that hold a model. A ClusterBaseModel has an empty namespace.
pub fn node_label(namespace: &str, name: &str) -> String {
    format!("{LABEL_PREFIX}{}", within(namespace, name, MAX_LABEL))
}

/// The key of a model in an agent's ConfigMap.
pub fn config_map_key(namespace: &str, name: &str) -> String {
    within(namespace, name, MAX_KEY)
}

/// Whether agents set this label.
pub fn is_node_label(label: &str) -> bool {
    label.strip_prefix(LABEL_PREFIX).is_some_and(|name| name.starts_with(CLUSTER) || name.contains(OWN))
}

const CLUSTER: &str = "clusterbasemodel.";
const OWN: &str = ".basemodel.";

fn within(namespace: &str, name: &str, most: usize) -> String {
    if namespace.is_empty() {
        return format!("{CLUSTER}{}", shortened(name, most - CLUSTER.len()));
    }
    let room = most - OWN.len();
    if namespace.len() + name.len() <= room {
        return format!("{namespace}{OWN}{name}");
    }
    let of_namespace = namespace.len().min(MIN_NAMESPACE);
    format!("{}{OWN}{}", shortened(namespace, of_namespace), shortened(name, room - of_namespace))
}

/// A name with a maximum length: the first digits of its SHA-256, and its end.
fn shortened(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    let hash = &Digest::hash(name.as_bytes()).hex()[..DIGITS];
    match most.checked_sub(DIGITS + 1).filter(|rest| *rest > 0) {
        // Names are ASCII, so any index is a character boundary.
        Some(rest) => format!("{hash}-{}", name.get(name.len() - rest..).unwrap_or_default()),
        None => hash[..most.min(DIGITS)].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_stand_in_the_label_and_long_ones_as_their_hash_and_end() {
        assert_eq!(node_label("", "llama"), "models.ome.io/clusterbasemodel.llama");
        assert_eq!(node_label("chat", "llama"), "models.ome.io/chat.basemodel.llama");
        // The first digits of the SHA-256 of the whole name.
        let long = node_label("", "llama-4-maverick-17b-128e-instruct-fp8");
        assert_eq!(long, "models.ome.io/clusterbasemodel.321a5921-k-17b-128e-instruct-fp8");
        for (namespace, name) in
            [("a-rather-long-namespace-of-a-team", "llama"), ("team", &"m".repeat(60)), (&"n".repeat(60), &"m".repeat(60))]
        {
            let label = node_label(namespace, name);
            assert!(label.len() <= LABEL_PREFIX.len() + MAX_LABEL && is_node_label(&label), "{label}");
        }
    }

    #[test]
    fn a_key_has_room_for_nearly_every_name() {
        assert_eq!(config_map_key("", "llama-4-maverick-17b-128e-instruct-fp8"), "clusterbasemodel.llama-4-maverick-17b-128e-instruct-fp8");
        assert_eq!(config_map_key("chat", "llama"), "chat.basemodel.llama");
        let key = config_map_key(&"n".repeat(63), &"m".repeat(253));
        assert!(key.len() <= MAX_KEY && key.contains(OWN), "{key}");
        assert!(config_map_key("", &"m".repeat(253)).len() == MAX_KEY);
    }

    #[test]
    fn other_labels_of_nodes_are_no_agent_s() {
        for label in ["kubernetes.io/hostname", "models.ome.io/instance", "clusterbasemodel.llama"] {
            assert!(!is_node_label(label), "{label}");
        }
    }
}
