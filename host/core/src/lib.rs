//! From a snapshot of the cluster to a plan, and nothing else: no Kubernetes client, no runtime, no server. That is a property of this crate's
//! dependencies. The order of the modules is in docs/architecture.md, and a check holds it.

pub mod allocation;
pub mod claims;
pub mod compare;
pub mod condition;
pub mod contest;
pub mod decide;
pub mod duration;
pub mod explain;
pub mod guards;
pub mod key;
pub mod kinds;
pub mod memory_admission;
pub mod memory_usage;
pub mod model_nodes;
pub mod objects;
pub mod patch;
pub mod plan;
pub mod planning;
pub mod pod_template;
pub mod pods;
pub mod point;
pub mod quantity;
pub mod question;
pub mod resource;
pub mod rules;
pub mod selector;
pub mod settings;
pub mod spans;
pub mod status;
pub mod structural;
pub mod subject_kind;
pub mod workload;
pub mod world;
