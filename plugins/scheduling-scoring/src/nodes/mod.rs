//! How suitable a node is for a pod: a weighted mean of parts, each from 0 to 1. No part excludes a node unless the configuration requires
//! it.

mod parts;
mod row;
mod sources;
#[cfg(test)]
mod tests;

pub use row::FEATURES;

use crate::mean::{mean, terms};
use parts::{PARTS, Prices};
use pointsman_plugin::scheduling_scoring::{Matrix, Term};
use row::Row;
use schemars::JsonSchema;
use serde::Deserialize;

/// The relative weight of each part, and nodes that are excluded for a pod. A negative weight inverts a part; 0 disables it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodePlacement {
    /// Higher for a node that has the pod's model, or will have it soon: half at 5 minutes.
    locality: f64,
    /// For a pod of a gang, higher for a node near the placed pods. For the first pod, higher for a node in a domain that has capacity for
    /// the whole gang and little more.
    gang: f64,
    /// Higher if fewer accelerators are left over: half at 2. For a pod without accelerators, nodes with free ones score lower; for a copy
    /// of a model, they score higher.
    packing: f64,
    /// Higher if the domain is fuller and has fewer completely free nodes: half at 4. It doesn't apply to gangs.
    domain: f64,
    /// Higher if there are fewer replicas of the pod in the zone and, with half the effect, on the node. In a zone that has more of them
    /// than another, `packing` and `domain` are 0. It doesn't apply to gangs.
    spread: f64,
    /// Higher for a node near the pods with the other role: decode near prefill.
    proximity: f64,
    /// Higher if as many free accelerators as the pod requests are connected to each other.
    adjacency: f64,
    /// Higher for a node that has the pod's images.
    image: f64,
    /// Higher for a node that isn't a spot node.
    spot: f64,
    /// Higher for a node with a lower price among the candidates.
    price: f64,
    /// Whether nodes without the pod's model are excluded.
    require_model: bool,
    /// The maximum price. More expensive nodes are excluded, but nodes without a price aren't.
    max_price: Option<f64>,
}

impl Default for NodePlacement {
    fn default() -> Self {
        Self {
            locality: 8.0,
            gang: 6.0,
            packing: 4.0,
            domain: 2.0,
            spread: 2.0,
            proximity: 1.5,
            adjacency: 0.5,
            image: 0.5,
            spot: 0.0,
            price: 0.0,
            require_model: false,
            max_price: None,
        }
    }
}

/// Why a node is excluded.
#[derive(Clone, Copy)]
enum Exclusion {
    ModelMissing,
    TooExpensive { price: f64, limit: f64 },
}

impl Exclusion {
    /// The exclusion as a term without a number.
    fn term(self) -> Term {
        let (code, message) = match self {
            Self::ModelMissing => ("ModelMissing", "It doesn't have the model, which `requireModel` requires: it is excluded.".to_owned()),
            Self::TooExpensive { price, limit } => {
                ("TooExpensive", format!("It costs {price}, and `maxPrice` is {limit}: it is excluded."))
            }
        };
        Term { code: code.to_owned(), message, value: None }
    }
}

impl NodePlacement {
    fn in_order(&self) -> [f64; PARTS] {
        [
            self.locality,
            self.gang,
            self.packing,
            self.domain,
            self.spread,
            self.proximity,
            self.adjacency,
            self.image,
            self.spot,
            self.price,
        ]
    }

    /// Whether replicas are spread over zones.
    fn spreads(&self) -> bool {
        self.spread > 0.0
    }

    /// Why the node is excluded for the pod.
    fn exclusion(&self, row: &Row) -> Option<Exclusion> {
        // Unknown features exclude nothing: for a pod without a model, none can be missing.
        if self.require_model && row.model_present <= 0.5 {
            return Some(Exclusion::ModelMissing);
        }
        let limit = self.max_price.filter(|limit| row.price > *limit)?;
        Some(Exclusion::TooExpensive { price: row.price, limit })
    }

    /// The prices of all candidates, if they have a weight: reading them takes a second pass over all rows.
    fn prices(&self, matrix: &Matrix) -> Prices {
        if self.price == 0.0 { Prices::default() } else { Prices::new(matrix) }
    }

    /// A score for each candidate.
    pub(crate) fn score(&self, matrix: &Matrix) -> Vec<f64> {
        let prices = self.prices(matrix);
        let score = |row: Row| match self.exclusion(&row) {
            Some(_) => f64::NAN,
            None => mean(self.in_order(), row.parts(prices, self.spreads())),
        };
        matrix.rows().map(Row::new).map(score).collect()
    }

    /// One term per part with a weight, or the reason why the node is excluded.
    pub(crate) fn explain(&self, matrix: &Matrix, values: &[f64]) -> Vec<Term> {
        let (row, prices) = (Row::new(values), self.prices(matrix));
        match self.exclusion(&row) {
            Some(exclusion) => vec![exclusion.term()],
            None => terms(self.in_order(), row.parts(prices, self.spreads()), row.sources(prices, self.spreads())),
        }
    }
}
