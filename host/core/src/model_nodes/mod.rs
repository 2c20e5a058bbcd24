//! Model files on nodes: which nodes get them, which hold them according to the agents, what a Job reads of a model on a claim, and the
//! resulting state of the model. Pure functions of the model, the nodes, the agents' ConfigMaps and the Jobs.

pub mod assignment;
pub mod copies;
pub mod inspection;
pub mod live;
pub mod names;
pub mod report;
pub mod reports;
pub mod selection;
pub mod summary;
