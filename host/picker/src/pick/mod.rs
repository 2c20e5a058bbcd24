//! Picks an endpoint for a request: computes features as a matrix, adds up the scores of each endpoint, and chooses by them.

mod choice;
mod context_length;
mod features;
mod filter;
#[cfg(test)]
mod fleet_tests;
mod request;
#[cfg(test)]
mod tests;

pub use choice::{Choice, Scores, least_loaded};
pub use features::{EndpointFeatures, Feature, fill};
pub use filter::{Filtering, ROLE};
pub use request::{Knowledge, RequestTraits, features, sent};
