//! The code that wit-bindgen generates from ../../wit: it moves values across the component's boundary, in each version that a plugin
//! supports. The records are those of `pointsman-interface`. Next to the bindings of an older version is the conversion of the records that
//! differ.

pub mod draft;
pub mod v0_1;
mod v0_1_records;
