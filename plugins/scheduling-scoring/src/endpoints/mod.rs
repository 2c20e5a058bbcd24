//! Which endpoint suits a request: a weighted mean of what scorers give it. They are those of llm-d's endpoint picker, so that a configuration
//! made for it orders endpoints in the same way here.

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
    /// How much all scorers count together.
    fn total(&self) -> f64 {
        self.scorers.iter().map(|scorer| scorer.weight).sum()
    }

    /// A score for each candidate. The sum is upstream's, scorer by scorer; divided by the sum of the weights it has the same order and lies
    /// between 0 and 1, outside of which the host would clamp it.
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
