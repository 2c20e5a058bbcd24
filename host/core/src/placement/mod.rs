//! The choice of a pod's node: the known nodes and pods, the question `node-placement`, the ranks for a scheduler, and the reservations for
//! gangs. Pure: the time is an argument.

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
