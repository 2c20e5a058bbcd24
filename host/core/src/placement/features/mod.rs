//! The features of candidate nodes for policies: one row of numbers per node.

pub mod facts;
mod nodes;
mod relatives;
#[cfg(test)]
mod tests;

use super::{
    cluster::Cluster,
    node::Node,
    pod::{MODEL_COPY, Pod},
    resources::Resources,
    settings::Settings,
    slots::Nodes,
};
use facts::word;
use nodes::{NodeRoom, Rooms, count, number, share};
use relatives::{GangMembers, Relatives};

/// A column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name, by which plugins request it.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning. For all features, an unknown value is NaN.
    pub about: &'static str,
}

const fn feature(name: &'static str, unit: &'static str, about: &'static str) -> Feature {
    Feature { name, unit, about }
}

/// The features of every node, in the order of the columns. Plugins may request these: `decide::scoring` has the same names.
pub const FEATURES: &[Feature] = &[
    feature("allocatable-cpu", "processors", "of the node, for pods"),
    feature("free-cpu", "processors", "free before the pod, without what gangs reserve"),
    feature("allocatable-memory-bytes", "bytes", "of the node, for pods"),
    feature("free-memory-bytes", "bytes", "free before the pod, without what gangs reserve"),
    feature(
        "allocatable-accelerators",
        "accelerators",
        "of the node, of the kind that the pod requests; of all kinds together if it requests none",
    ),
    feature("free-accelerators", "accelerators", "free ones of these before the pod, without what gangs reserve"),
    feature(
        "requested-accelerators",
        "accelerators",
        "that the pod requests; the same in every row. NaN for a copy of a model, since the pods that will use it aren't known",
    ),
    feature("accelerator-memory-bytes", "bytes", "the memory of one accelerator, by a label of the node; NaN without the label"),
    feature(
        "adjacent-accelerators",
        "accelerators",
        "free ones that are certainly linked to one another within the node, by its label with the size of such an island; \
         NaN without the label",
    ),
    feature("node-is-free", "0 or 1", "1 if the node has accelerators and none of them is taken or reserved"),
    feature("model-present", "0 or 1", "1 if the node has all models of the pod; NaN if the pod names none"),
    feature(
        "model-download-share",
        "0 to 1",
        "how much of a model the node has, of the one that is the farthest behind; NaN if the pod names none",
    ),
    feature("model-seconds-left", "seconds", "until the node has all models of the pod, 0 if it has them; NaN if that isn't known"),
    feature("pods", "pods", "on the node"),
    feature("subject-pods", "pods", "of the same owner and role on the node; here and below, a pod that is being deleted doesn't count"),
    feature(
        "zone-spread",
        "pods",
        "of the same owner and role in the node's zone, less those in the candidates' zone with the fewest; NaN without a zone",
    ),
    feature(
        "peer-distance",
        "0 to 5",
        "to the nearest pod of the same owner with another role: 0 is the same node, 1 the same NVLink domain, 2 RDMA domain, \
         3 rack, 4 zone, 5 elsewhere; NaN if no such pod has a node",
    ),
    feature("gang-size", "pods", "members of the pod's gang, with the pod; 0 without a gang"),
    feature("gang-placed", "pods", "other members that have a node; 0 without a gang"),
    feature("gang-here", "pods", "other members on this node; 0 without a gang"),
    feature("gang-distance", "0 to 5", "the largest distance to another member that has a node, like peer-distance; NaN without one"),
    feature(
        "domain-free-nodes",
        "nodes",
        "other nodes of the domain that have accelerators, none of them taken or reserved, and aren't cordoned; the domain is the \
         finest of NVLink domain, RDMA domain, rack and zone that the node has a label of; NaN without one",
    ),
    feature("domain-accelerators-taken-share", "0 to 1", "of the domain's accelerators, those taken or reserved; NaN without a domain"),
    feature(
        "gang-domain-free-accelerators",
        "accelerators",
        "free ones on nodes of the domain that aren't cordoned, less what the pod and the members without a node need: below 0 \
         the gang doesn't fit there; NaN without a gang or a domain",
    ),
    feature("pool-pressure", "0 to 1", "of the cluster's accelerators of the kind, those taken or reserved; the same in every row"),
    feature("image-share", "0 to 1", "of the pod's images, those that the node has, by number"),
    feature("spot", "0 or 1", "1 if the node can be taken away at any time, by its labels"),
    feature("price", "as written", "of the node, by its annotation or label; NaN without one"),
];

/// The names of the columns: [`FEATURES`], then those that an administrator has defined.
pub fn names(settings: &Settings) -> Vec<&str> {
    let added = settings.features.iter().map(|feature| feature.name.as_str());
    FEATURES.iter().map(|feature| feature.name).chain(added).collect()
}

/// One row per candidate, with the columns of [`names`]. An unknown node has a row of NaN. `reserved` returns the resources that gangs
/// reserve on a node for pods other than this one; it is called once per node of the cluster.
pub fn rows(
    cluster: &Cluster,
    settings: &Settings,
    pod: &Pod,
    nodes: &Nodes<'_>,
    reserved: &dyn Fn(&str) -> Option<Resources>,
) -> Vec<f64> {
    let (kind, requested) = pod.accelerator().unzip();
    let rooms = Rooms::new(cluster, settings, pod, kind, reserved);
    let places = nodes.places();
    let mut relatives = Relatives::new(cluster, pod, &rooms);
    relatives.set_candidate_zones(places.iter().filter_map(|at| rooms.get((*at)?)?.basics.zone()));
    let table = Table {
        models: pod.models.iter().map(|label| (word(label), label.as_str())).collect(),
        images: pod.images.iter().map(word).collect(),
        members: GangMembers::new(cluster, pod, kind, &rooms),
        requested: if pod.role == MODEL_COPY { f64::NAN } else { number(requested.unwrap_or_default()) },
        relatives,
        rooms,
    };
    let added = settings.features.len();
    let mut values = Vec::with_capacity(places.len() * (FEATURES.len() + added));
    for place in places {
        match place.and_then(|at| Some((at, table.rooms.get(at)?))) {
            Some((at, room)) => {
                values.extend_from_slice(&table.row(at, room));
                if added > 0 {
                    values.extend(added_values(&room.state.node, added));
                }
            }
            None => values.extend(std::iter::repeat_n(f64::NAN, FEATURES.len() + added)),
        }
    }
    values
}

/// The values of the features that an administrator has defined.
fn added_values(node: &Node, most: usize) -> impl Iterator<Item = f64> {
    node.custom.iter().copied().chain(std::iter::repeat(f64::NAN)).take(most)
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// The inputs of all rows of a question.
struct Table<'q> {
    rooms: Rooms<'q>,
    relatives: Relatives,
    members: GangMembers,
    /// The words and labels of the pod's models.
    models: Vec<(u64, &'q str)>,
    /// The words of the pod's images.
    images: Vec<u64>,
    requested: f64,
}

impl Table<'_> {
    fn row(&self, at: usize, room: &NodeRoom<'_>) -> [f64; FEATURES.len()] {
        let NodeRoom { state, basics, .. } = room;
        let domain = self.rooms.domain(room);
        let in_domain = |value: &dyn Fn(nodes::Domain) -> f64| domain.map_or(f64::NAN, value);
        let [model_present, download_share, seconds_left] = self.model(room);
        [
            number(basics.cpu) / 1000.0,
            number(room.free_cpu) / 1000.0,
            number(basics.memory),
            number(room.free_memory),
            number(room.accelerators),
            number(room.free_accelerators),
            self.requested,
            basics.accelerator_bytes,
            room.adjacent(),
            flag(room.is_whole),
            model_present,
            download_share,
            seconds_left,
            number(count(state.pods.len()) - i64::from(room.has_pod)),
            self.relatives.replicas(at),
            self.relatives.zone_spread(room),
            self.relatives.peer_distance(at, room),
            self.members.size(),
            self.members.placed(),
            self.members.here(at),
            self.members.distance(at, room),
            in_domain(&|domain| number(domain.whole_nodes - i64::from(room.is_whole && !basics.is_cordoned))),
            in_domain(&|domain| share(domain.taken, domain.accelerators)),
            in_domain(&|domain| self.members.spare(domain.free)),
            self.rooms.pressure,
            self.image_share(room),
            flag(basics.is_spot),
            basics.price,
        ]
    }

    /// Whether the node has the models, their downloaded share, and the seconds until they are complete.
    fn model(&self, room: &NodeRoom<'_>) -> [f64; 3] {
        if self.models.is_empty() {
            return [f64::NAN; 3];
        }
        let (mut present, mut share, mut left) = (1.0, 1.0_f64, 0.0_f64);
        for (word, label) in &self.models {
            if room.facts.models.binary_search(word).is_ok() {
                continue;
            }
            present = 0.0;
            let download = room.state.downloads.get(*label);
            share = share.min(download.map_or(0.0, |download| download.share.clamp(0.0, 1.0)));
            // If it is unknown for one model, it is unknown for all.
            let seconds = download.and_then(|download| download.seconds).unwrap_or(f64::NAN);
            left = if left.is_nan() || seconds.is_nan() { f64::NAN } else { left.max(seconds) };
        }
        [present, share, left]
    }

    fn image_share(&self, room: &NodeRoom<'_>) -> f64 {
        if self.images.is_empty() {
            return 0.0;
        }
        let there = self.images.iter().filter(|image| room.facts.images.binary_search(image).is_ok());
        share(count(there.count()), count(self.images.len()))
    }
}
