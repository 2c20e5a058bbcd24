//! Which nodes get a model's files, which hold them, as the agents on the nodes report, what a Job reads of a model on a claim, and what follows
//! for the model: pure functions of the model, the nodes, the agents' ConfigMaps and the Jobs.

pub mod assignment;
pub mod copies;
pub mod inspection;
pub mod live;
pub mod names;
pub mod report;
pub mod reports;
pub mod selection;
pub mod summary;
