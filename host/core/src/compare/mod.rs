//! What another policy set would make of the subjects that there are: two plans of each, made side by side and compared. Nothing is
//! written, and nobody whose turn it is waits for it.

pub mod effect;
pub mod fields;
pub mod places;
pub mod report;

pub use effect::{Effect, SubjectChange};
pub use fields::{FieldSet, Overlap};
pub use report::{Changed, Report};
