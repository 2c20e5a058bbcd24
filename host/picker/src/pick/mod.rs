//! From what is known of endpoints to the one that a request goes to: features as a matrix, scores as one number for each endpoint, and a
//! choice by these.

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
