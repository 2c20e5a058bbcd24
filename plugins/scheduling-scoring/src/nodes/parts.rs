//! The parts of a node's score, each from 0 to 1, or NaN where nothing is known or the part doesn't concern the pod.

use super::row::Row;
use crate::{NEUTRAL, mean::share};
use pointsman_plugin::scheduling_scoring::Matrix;

/// How many parts a score has.
pub(super) const PARTS: usize = 10;

// Where a part is in the middle between its ends.
const DOWNLOAD_SECONDS: f64 = 300.0;
const ACCELERATORS_LEFT: f64 = 2.0;
const FREE_NODES: f64 = 4.0;
const REPLICAS: f64 = 0.25;

/// How near each distance is, and in which words. Pods that exchange tensors or KV caches do so at full speed within an RDMA domain, so the
/// largest step is between that and the rack.
const DISTANCES: [(f64, &str); 6] = [
    (1.0, "on it"),
    (0.95, "in its NVLink domain"),
    (0.75, "in its RDMA domain"),
    (0.45, "in its rack"),
    (0.2, "in its zone"),
    (0.0, "elsewhere"),
];

/// The greatest distance within an RDMA domain.
const RDMA_DOMAIN: f64 = 2.0;

/// The entry of a distance; none if it isn't known.
pub(super) fn distance(steps: f64) -> Option<(f64, &'static str)> {
    (0_u8..).zip(DISTANCES).take_while(|(at, _)| steps >= f64::from(*at)).last().map(|(_, entry)| entry)
}

fn nearness(steps: f64) -> f64 {
    distance(steps).map_or(f64::NAN, |(near, _)| near)
}

/// The least and the greatest price of all candidates.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Default for Prices {
    /// Those of nodes without any.
    fn default() -> Self {
        Self { least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

impl Prices {
    pub(super) fn new(matrix: &Matrix) -> Self {
        let mut prices = Self::default();
        for price in matrix.rows().map(|row| Row::new(row).price) {
            // NaN is neither less nor greater.
            if price < prices.least {
                prices.least = price;
            }
            if price > prices.most {
                prices.most = price;
            }
        }
        prices
    }

    /// 1 for the cheapest, 0 for the most expensive; NaN if all with a price cost the same, so that those without one aren't worse.
    fn cheapness(self, price: f64) -> f64 {
        if self.least < self.most { (self.most - price) / (self.most - self.least) } else { f64::NAN }
    }
}

impl Row {
    /// The parts in the order of `NodePlacement::in_order`.
    pub(super) fn parts(&self, prices: Prices, spreads: bool) -> [f64; PARTS] {
        // Nothing is packed into a zone that has more replicas than another: else one outage would end all of them.
        let packed = |part: f64| if spreads && self.is_crowded() && !part.is_nan() { 0.0 } else { part };
        [
            self.locality(),
            self.gang(),
            packed(self.packing()),
            packed(self.domain()),
            self.spread(),
            if self.requests_accelerators() { nearness(self.peer_distance) } else { f64::NAN },
            if self.requests_accelerators() { (self.adjacent / self.requested).clamp(0.0, 1.0) } else { f64::NAN },
            self.images.clamp(0.0, 1.0),
            1.0 - self.spot.clamp(0.0, 1.0),
            prices.cheapness(self.price),
        ]
    }

    fn locality(&self) -> f64 {
        if self.model_present.is_nan() {
            f64::NAN
        } else if self.model_present > 0.5 {
            1.0
        } else if self.seconds_left.is_nan() {
            // It may be there in a minute or in hours: half of what is there counts.
            let is_begun = self.download_share > 0.0;
            if is_begun { self.download_share.clamp(0.0, 1.0) / 2.0 } else { 0.0 }
        } else {
            // By the square: a minute is nearly nothing beside the time that a model takes to start.
            let late = self.seconds_left / DOWNLOAD_SECONDS;
            1.0 / (1.0 + late * late)
        }
    }

    fn gang(&self) -> f64 {
        if !self.is_in_gang() {
            return f64::NAN;
        }
        let near = nearness(self.gang_distance);
        // The room in the domain decides among nodes that are equally far: where a gang is split, into as few domains as possible.
        if near.is_nan() { self.room() } else { 0.9 * near + 0.1 * self.room() }
    }

    /// How well the rest of the gang fits into the node's domain: better, the less is left over or lacking. Between a domain where it fits
    /// and one where it doesn't lies so much that, of the other parts, only `locality` can outweigh it by default.
    fn room(&self) -> f64 {
        let gang = self.requested * self.gang_size;
        let gang = if gang > 1.0 { gang } else { 1.0 };
        if self.gang_spare.is_nan() {
            NEUTRAL
        } else if self.gang_spare < 0.0 {
            0.05 - 0.05 * share(-self.gang_spare, gang)
        } else {
            1.0 - 0.25 * share(self.gang_spare, gang)
        }
    }

    /// Whether another zone has fewer replicas of the pod. Beside its peers it stays nevertheless: they exchange too much.
    pub(super) fn is_crowded(&self) -> bool {
        let is_beside_peers = self.requests_accelerators() && self.peer_distance <= RDMA_DOMAIN;
        let takes_accelerators = self.requests_accelerators() || self.is_copy_of_model();
        self.zone_spread > 0.0 && takes_accelerators && !self.is_in_gang() && !is_beside_peers
    }

    /// How many accelerators are left over once the pod is there; below 0 if too few are free.
    pub(super) fn left(&self) -> f64 {
        self.free - self.requested
    }

    fn packing(&self) -> f64 {
        if self.is_copy_of_model() {
            return share(self.free, ACCELERATORS_LEFT);
        }
        if !self.requests_accelerators() {
            return self.keeping_off();
        }
        let left = self.left();
        if left < 0.0 {
            0.0
        } else if left > 0.0 && self.is_wholly_free() {
            // A whole node is worth more than what the pod leaves of it.
            (1.0 - share(left, ACCELERATORS_LEFT)) / 4.0
        } else {
            1.0 - share(left, ACCELERATORS_LEFT)
        }
    }

    /// For a pod without accelerators: 1 on a node without any, and less on others, the more of theirs are free.
    fn keeping_off(&self) -> f64 {
        if self.requested.is_nan() || self.allocatable.is_nan() {
            f64::NAN
        } else if self.allocatable > 0.0 {
            0.5 - 0.5 * (self.free / self.allocatable).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }

    fn domain(&self) -> f64 {
        if self.is_in_gang() || !self.requests_accelerators() {
            return f64::NAN;
        }
        f64::midpoint(self.domain_taken.clamp(0.0, 1.0), 1.0 - share(self.all_free_nodes(), FREE_NODES))
    }

    /// The wholly free nodes of the domain with this one: otherwise the last free node of a domain would look better than one in use.
    pub(super) fn all_free_nodes(&self) -> f64 {
        if self.is_wholly_free() { self.free_nodes + 1.0 } else { self.free_nodes }
    }

    fn spread(&self) -> f64 {
        if self.is_in_gang() {
            return f64::NAN;
        }
        let fewness = |replicas: f64| if replicas.is_nan() { NEUTRAL } else { 1.0 - share(replicas, REPLICAS) };
        (2.0 * fewness(self.zone_spread) + fewness(self.replicas)) / 3.0
    }
}
