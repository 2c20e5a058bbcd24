//! The parts of a node's score, each from 0 to 1, or NaN if it is unknown or irrelevant for the pod.

use super::row::Row;
use crate::{NEUTRAL, mean::share};
use pointsman_plugin::scheduling_scoring::Matrix;

/// The number of parts.
pub(super) const PARTS: usize = 10;

// The values for which a part is halfway between its ends.
const DOWNLOAD_SECONDS: f64 = 300.0;
const ACCELERATORS_LEFT: f64 = 2.0;
const FREE_NODES: f64 = 4.0;
const REPLICAS: f64 = 0.25;

/// The score of each distance, and its description. Pods that exchange tensors or KV caches do so at full speed within an RDMA domain, so
/// the largest step is between that and the rack.
const DISTANCES: [(f64, &str); 6] = [
    (1.0, "on it"),
    (0.95, "in its NVLink domain"),
    (0.75, "in its RDMA domain"),
    (0.45, "in its rack"),
    (0.2, "in its zone"),
    (0.0, "elsewhere"),
];

/// The maximum distance within an RDMA domain.
const RDMA_DOMAIN: f64 = 2.0;

/// The entry of a distance; none if unknown.
pub(super) fn distance(steps: f64) -> Option<(f64, &'static str)> {
    (0_u8..).zip(DISTANCES).take_while(|(at, _)| steps >= f64::from(*at)).last().map(|(_, entry)| entry)
}

fn nearness(steps: f64) -> f64 {
    distance(steps).map_or(f64::NAN, |(near, _)| near)
}

/// The lowest and the highest price of all candidates.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Default for Prices {
    /// The range if no node has a price.
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

    /// 1 for the cheapest, 0 for the most expensive. NaN if all prices are equal, so that nodes without a price aren't worse.
    fn cheapness(self, price: f64) -> f64 {
        if self.least < self.most { (self.most - price) / (self.most - self.least) } else { f64::NAN }
    }
}

impl Row {
    /// The parts in the order of `NodePlacement::in_order`.
    pub(super) fn parts(&self, prices: Prices, spreads: bool) -> [f64; PARTS] {
        // Nothing is packed into a zone that has more replicas than another. Otherwise, one outage could terminate all of them.
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
            // It may take a minute or hours, so the downloaded share has half its weight.
            let is_begun = self.download_share > 0.0;
            if is_begun { self.download_share.clamp(0.0, 1.0) / 2.0 } else { 0.0 }
        } else {
            // Squared: a minute is negligible compared with the time that a model takes to start.
            let late = self.seconds_left / DOWNLOAD_SECONDS;
            1.0 / (1.0 + late * late)
        }
    }

    fn gang(&self) -> f64 {
        if !self.is_in_gang() {
            return f64::NAN;
        }
        let near = nearness(self.gang_distance);
        // Among equally distant nodes, the free capacity of the domain decides, so that a split gang uses as few domains as possible.
        if near.is_nan() { self.room() } else { 0.9 * near + 0.1 * self.room() }
    }

    /// How well the rest of the gang fits into the node's domain: the less is left over or missing, the better. The step between a domain
    /// where it fits and one where it doesn't is so large that, by default, only `locality` can outweigh it.
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

    /// Whether another zone has fewer replicas of the pod. Close to its peers, the pod may stay anyway, because they exchange a lot of
    /// data.
    pub(super) fn is_crowded(&self) -> bool {
        let is_beside_peers = self.requests_accelerators() && self.peer_distance <= RDMA_DOMAIN;
        let takes_accelerators = self.requests_accelerators() || self.is_copy_of_model();
        self.zone_spread > 0.0 && takes_accelerators && !self.is_in_gang() && !is_beside_peers
    }

    /// The number of free accelerators after the pod is placed; below 0 if there are too few.
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
            // A completely free node is more valuable than the rest that the pod would leave.
            (1.0 - share(left, ACCELERATORS_LEFT)) / 4.0
        } else {
            1.0 - share(left, ACCELERATORS_LEFT)
        }
    }

    /// For a pod without accelerators: 1 on a node without any. On other nodes, the more accelerators are free, the less.
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

    /// The completely free nodes of the domain, including this one. Otherwise, the last free node of a domain would look better than one in
    /// use.
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
