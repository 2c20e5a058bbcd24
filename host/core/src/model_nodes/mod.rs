//! Which nodes get a model's files, which hold them, as the agents on the nodes report, and what follows for the model: pure functions of the
//! model, the nodes and the agents' ConfigMaps.

pub mod assignment;
pub mod live;
pub mod names;
pub mod report;
pub mod reports;
pub mod selection;
pub mod summary;
