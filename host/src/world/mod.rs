//! What we know of the cluster.

pub mod apis;
