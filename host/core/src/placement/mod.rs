//! Which node a pod goes to: what is known of nodes and pods, the question `node-placement` about them, the ranks that a scheduler is answered
//! with, and the nodes that are reserved for gangs. Pure: the time is passed in.

pub mod cluster;
pub mod derived;
pub mod features;
pub mod fit;
pub mod gangs;
pub mod node;
pub mod planned;
pub mod pod;
pub mod question;
pub mod rank;
pub mod record;
pub mod resources;
pub mod settings;
pub mod simulation;
pub mod slots;
pub mod usage;

pub use cluster::{Cluster, Download, NodeState};
pub use node::{Node, Taint};
pub use pod::{Gang, Owner, Pod, PodKey};
pub use rank::Ties;
pub use resources::Resources;
pub use settings::Settings;
pub use slots::{NodeNames, Nodes};
