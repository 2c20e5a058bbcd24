//! The features' inputs from a node itself, cached per node: a question about 5,000 nodes has only a few milliseconds, and looking up
//! twelve keys in the labels of each takes longer.

use super::super::{
    node::Node,
    resources::{CPU, MEMORY, is_accelerator},
    settings::Settings,
};
use crate::model_nodes::{names::is_node_label, report::NodeState as ModelState};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The levels of the topology: nvlink, rdma, rack, zone.
pub(super) const LEVELS: usize = 4;

/// The level of zones.
pub(super) const ZONE: usize = 3;

/// The position of a node: a word for its value at each level, the finest first; none without the label. Equal values at different levels
/// have different words.
pub(super) type Position = [Option<u64>; LEVELS];

/// The number of bytes in the unit of the label with an accelerator's memory.
const MIB: f64 = 1_048_576.0;

/// The features' inputs from a node itself. Names and values are stored as words, 64-bit hashes that are the same in every process: with a
/// million of them in a cluster, the probability of a collision is one in thirty million.
#[derive(Debug)]
pub struct NodeFacts {
    pub(in crate::placement) basics: NodeBasics,
    /// The node's kinds of accelerators, with their numbers.
    pub(in crate::placement) accelerators: Vec<(String, i64)>,
    /// The words of the labels of Ready models, sorted.
    pub(super) models: Vec<u64>,
    /// The words of the names of its images, sorted.
    pub(super) images: Vec<u64>,
}

/// The inputs of each row, regardless of the pod.
#[derive(Clone, Copy, Debug)]
pub struct NodeBasics {
    pub(super) place: Position,
    /// Thousandths of a processor.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) accelerator_bytes: f64,
    /// The number of its accelerators that are linked to each other.
    pub(super) island: Option<i64>,
    pub(super) price: f64,
    pub(super) is_spot: bool,
    pub(super) is_cordoned: bool,
}

/// The word for a name.
pub(in crate::placement) fn word(name: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl NodeFacts {
    /// The facts of a node, under the settings that it was parsed with.
    pub(in crate::placement) fn for_node<'n>(node: &'n Node, settings: &Settings) -> &'n Arc<Self> {
        node.facts.get(|| Arc::new(Self::new(node, settings)))
    }

    fn new(node: &Node, settings: &Settings) -> Self {
        let label = |key: &str| node.labels.get(key).map(|value| value.trim()).filter(|value| !value.is_empty());
        let mut level = 0;
        let place = settings.topology.levels().map(|key| {
            level += 1;
            label(key).map(|value| word(&(level, value)))
        });
        let memory = label(&settings.accelerator_memory).and_then(|text| text.parse::<f64>().ok());
        let ready = ModelState::Ready.word();
        let models = node.labels.iter().filter(|(label, state)| *state == ready && is_node_label(label)).map(|(label, _)| word(label));
        let accelerators = node.allocatable.iter().filter(|(name, amount)| *amount > 0 && is_accelerator(name));
        let basics = NodeBasics {
            place,
            cpu: node.allocatable.get(CPU),
            memory: node.allocatable.get(MEMORY),
            accelerator_bytes: memory.filter(|mib| mib.is_finite() && *mib > 0.0).map_or(f64::NAN, |mib| mib * MIB),
            island: label(&settings.accelerator_island).and_then(|text| text.parse().ok()).filter(|size| *size > 0),
            price: node.price(settings).unwrap_or(f64::NAN),
            is_spot: settings.is_spot(&node.labels),
            is_cordoned: node.unschedulable,
        };
        Self {
            basics,
            accelerators: accelerators.map(|(name, amount)| (name.to_owned(), amount)).collect(),
            models: in_order(models),
            images: in_order(node.images.keys().map(word)),
        }
    }
}

impl NodeBasics {
    /// Its finest domain.
    pub(super) fn domain(&self) -> Option<u64> {
        self.place.iter().find_map(|value| *value)
    }

    pub(super) fn zone(&self) -> Option<u64> {
        self.place[ZONE]
    }
}

fn in_order(words: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut words: Vec<u64> = words.collect();
    words.sort_unstable();
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::resources::Resources;

    fn node(labels: &[(&str, &str)]) -> Node {
        Node {
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            allocatable: Resources::from_iter([("cpu", 8000), ("nvidia.com/gpu", 8), ("nvidia.com/mig-1g.5gb", 7), ("rdma/hca", 2)]),
            ..Node::default()
        }
    }

    #[test]
    fn what_is_no_number_is_unknown() {
        let settings = Settings::default();
        let (memory, island) = (settings.accelerator_memory.as_str(), settings.accelerator_island.as_str());
        let unknown = ["many", "0", "-1", "NaN"].map(|written| (written, f64::NAN, None));
        for (written, bytes, size) in [("81920", 81920.0 * MIB, Some(81920))].into_iter().chain(unknown) {
            let node = node(&[(memory, written), (island, written)]);
            let facts = NodeFacts::for_node(&node, &settings);
            assert_eq!((facts.basics.accelerator_bytes.to_bits(), facts.basics.island), (bytes.to_bits(), size), "{written}");
        }
    }

    #[test]
    fn the_domain_is_the_finest_and_no_domain_of_one_level_is_one_of_another() {
        let settings = Settings::default();
        let [nvlink, rdma, rack, zone] = settings.topology.levels();
        let domain = |labels: &[(&str, &str)]| NodeFacts::for_node(&node(labels), &settings).basics.domain();
        assert_eq!(domain(&[(nvlink, "a"), (zone, "z")]), domain(&[(nvlink, "a"), (rack, "r")]));
        let others = [&[(nvlink, "a")][..], &[(rdma, "a")], &[(rack, "a")], &[(zone, "a")], &[(zone, "b")], &[(rack, "")], &[]].map(domain);
        let distinct: std::collections::BTreeSet<_> = others.iter().collect();
        assert_eq!(distinct.len(), 6, "an empty value is none: {others:?}");
        let both = node(&[(rack, "r"), (zone, "z")]);
        let basics = NodeFacts::for_node(&both, &settings).basics;
        assert_eq!((basics.zone(), basics.place[0]), (NodeFacts::for_node(&node(&[(zone, "z")]), &settings).basics.zone(), None));
    }

    #[test]
    fn kinds_of_accelerators_are_told_from_other_devices_and_models_that_are_ready_from_others() {
        let labels = [("models.ome.io/clusterbasemodel.a", "Ready"), ("models.ome.io/clusterbasemodel.b", "Updating"), ("other", "Ready")];
        let node = node(&labels);
        let facts = NodeFacts::for_node(&node, &Settings::default());
        assert_eq!(facts.accelerators, [("nvidia.com/gpu".to_owned(), 8), ("nvidia.com/mig-1g.5gb".to_owned(), 7)]);
        assert_eq!(facts.models, [word("models.ome.io/clusterbasemodel.a")]);
    }

    #[test]
    fn a_copy_finds_its_own_facts_and_equals_the_node() {
        let settings = Settings::default();
        let first = node(&[("nvidia.com/gpu.memory", "1")]);
        assert!(NodeFacts::for_node(&first, &settings).basics.accelerator_bytes > 0.0);
        let mut copy = first.clone();
        assert_eq!(copy, first);
        copy.labels.clear();
        assert!(NodeFacts::for_node(&copy, &settings).basics.accelerator_bytes.is_nan());
    }
}
