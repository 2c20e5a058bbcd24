//! The policy points: the records that questions and answers are made of, as `wit/` defines them in its newest version. All that decides sees
//! these alone; what an older version has otherwise is converted here, between them and the plugin.

pub mod describe;
pub mod v0_1;

pub use pointsman_interface::{
    Entry, Fact, Failure, FailureKind, IMAGE_MIRROR, Question, Reason, Role, Subject, image, metadata_propagation as propagation, mirrored,
    pod_templating as templating, runtime_selection as selection, scheduling_scoring as scoring, version,
};
