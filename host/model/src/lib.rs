//! Reads facts from the files of a model: architecture, parameters, quantization, context and capabilities. It reads only a few small files
//! and the headers of the weights, from a folder or a store: no Kubernetes, no runtime, no network.
//!
//! ```no_run
//! let facts = pointsman_model::inspect(&pointsman_model::Directory::new("/models/llama-3-1-8b")?)?;
//! println!("{}", facts.parameters.map_or_else(|| "unknown".to_owned(), |parameters| parameters.size));
//! facts.notes.iter().for_each(|note| eprintln!("{note}"));
//! # Ok::<(), pointsman_model::FilesError>(())
//! ```

mod capabilities;
mod config;
mod context;
mod diffusion;
mod directory;
mod facts;
mod families;
mod family;
mod files;
mod formula;
mod index;
mod inspect;
pub mod limits;
mod packing;
mod quantization;
mod safetensors;
mod size_text;
mod weights;

pub use capabilities::Capability;
pub use diffusion::{DiffusionComponent, DiffusionPipeline};
pub use directory::Directory;
pub use facts::{ModelFacts, Note, Parameters, Source, Versioned};
pub use files::{FileEntry, FilesError, Listing, ModelFiles};
pub use inspect::{inspect, inspect_config};
pub use quantization::Quantization;
pub use size_text::size_text;
