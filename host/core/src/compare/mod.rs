//! The effect of another policy set on all live subjects: both plans of each subject are built and compared. Nothing is written, and queued
//! subjects aren't delayed.

pub mod effect;
pub mod fields;
pub mod places;
pub mod report;

pub use effect::{Effect, SubjectChange};
pub use fields::{FieldSet, Overlap};
pub use report::{Changed, Report};
