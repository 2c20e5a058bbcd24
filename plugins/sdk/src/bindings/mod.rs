//! What wit-bindgen makes of ../../wit: how values cross the component's boundary, in each version that a plugin speaks. The records are
//! those of `pointsman-interface`; what an older version has otherwise is converted beside its bindings.

pub mod draft;
pub mod v0_1;
mod v0_1_records;
