//! How suitable an endpoint is for a request: a weighted mean of scorers. They are those of llm-d's endpoint picker, so that a
//! configuration for it gives the same order of endpoints here.

mod columns;
mod config;
mod explain;
mod scorers;
#[cfg(test)]
mod tests;

pub use columns::FEATURES;
pub use config::EndpointPick;

use crate::NEUTRAL;
use config::ScorerKind;
use pointsman_plugin::scheduling_scoring::Matrix;

impl EndpointPick {
    /// The sum of all weights.
    fn total(&self) -> f64 {
        self.scorers.iter().map(|scorer| scorer.weight).sum()
    }

    /// One score per candidate. The sum is the same as upstream's, scorer by scorer. Divided by the sum of the weights, it has the same
    /// order, and is between 0 and 1, so that the host doesn't clamp it.
    pub(crate) fn score(&self, matrix: &Matrix) -> Vec<f64> {
        let total = self.total();
        if total <= 0.0 {
            return vec![NEUTRAL; matrix.rows().len()];
        }
        let mut sums = vec![0.0; matrix.rows().len()];
        for scorer in self.scorers.iter().filter(|scorer| scorer.weight > 0.0) {
            scorer.kind.add(matrix, scorer.weight, &mut sums);
        }
        for sum in &mut sums {
            *sum /= total;
        }
        sums
    }
}
