//! The policy points: the records of questions and answers, as `wit/` defines them in its newest version. Decisions use only these. For a
//! plugin of an older version, this module converts the records that differ.

pub mod describe;
pub mod v0_1;

pub use pointsman_interface::{
    Entry, Fact, Failure, FailureKind, IMAGE_MIRROR, Question, Reason, Role, Subject, image, metadata_propagation as propagation, mirrored,
    pod_templating as templating, runtime_selection as selection, scheduling_scoring as scoring, version,
};
