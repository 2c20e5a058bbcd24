//! Which node suits a pod: a weighted mean of parts, each from 0 to 1. No part excludes a node, unless the configuration says so.

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

/// How much each part counts beside the others, and which nodes a pod never gets. Below 0 a part counts the other way around; 0 leaves it
/// out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodePlacement {
    /// A node that has the pod's model is worth more, and so is one that will have it soon: half at 5 minutes.
    locality: f64,
    /// For a pod of a gang, a node near the placed pods is worth more. For the first pod it is one whose domain has room for the whole gang
    /// and little more.
    gang: f64,
    /// A node is worth more, the fewer accelerators are left over: half at 2. For a pod without accelerators, nodes that have free ones are
    /// worth less; for a copy of a model they are worth more.
    packing: f64,
    /// A node is worth more, the fuller its domain is and the fewer nodes of it are wholly free: half at 4. It doesn't count for gangs.
    domain: f64,
    /// A node is worth more, the fewer replicas of the pod are in its zone and, half as much, on it. In a zone that has more of them than
    /// another, `packing` and `domain` are 0. It doesn't count for gangs.
    spread: f64,
    /// A node near the pods with the other role is worth more: decode near prefill.
    proximity: f64,
    /// A node is worth more if as many free accelerators as the pod requests are linked to one another.
    adjacency: f64,
    /// A node that has the pod's images is worth more.
    image: f64,
    /// A node that isn't a spot node is worth more.
    spot: f64,
    /// A node is worth more, the cheaper it is among the candidates.
    price: f64,
    /// Whether nodes without the pod's model are excluded.
    require_model: bool,
    /// Nodes that cost more are excluded; those without a price aren't.
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
    /// As a part of no score.
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

    /// Why the pod never gets this node.
    fn exclusion(&self, row: &Row) -> Option<Exclusion> {
        // What isn't known excludes nothing: a pod that names no model can't miss one.
        if self.require_model && row.model_present <= 0.5 {
            return Some(Exclusion::ModelMissing);
        }
        let limit = self.max_price.filter(|limit| row.price > *limit)?;
        Some(Exclusion::TooExpensive { price: row.price, limit })
    }

    /// The prices of all candidates, if they count: to read them takes a second pass over all rows.
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

    /// A term for each part that counts, or why the node is excluded.
    pub(crate) fn explain(&self, matrix: &Matrix, values: &[f64]) -> Vec<Term> {
        let (row, prices) = (Row::new(values), self.prices(matrix));
        match self.exclusion(&row) {
            Some(exclusion) => vec![exclusion.term()],
            None => terms(self.in_order(), row.parts(prices, self.spreads()), row.sources(prices, self.spreads())),
        }
    }
}
