//! Scans a body for its model, in the format of its Content-Type.

use super::{Malformed, form_model::FormModel, json_model::JsonModel};

/// A scan of one body.
#[derive(Debug)]
pub enum Scan {
    /// Of JSON.
    Json(JsonModel),
    /// Of a form.
    Form(Box<FormModel>),
}

impl Scan {
    /// Starts a scan. A body without a Content-Type is parsed as JSON, like in servers.
    pub fn new(content_type: Option<&str>) -> Result<Self, Malformed> {
        let media = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media.len() >= 10 && media.is_char_boundary(10) && media[..10].eq_ignore_ascii_case("multipart/") {
            return FormModel::new(content_type.unwrap_or_default()).map(|form| Self::Form(Box::new(form)));
        }
        Ok(Self::Json(JsonModel::default()))
    }

    /// Scans a chunk.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        match self {
            Self::Json(scan) => scan.read(chunk),
            Self::Form(scan) => scan.read(chunk),
        }
    }

    /// The name, once it has passed.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Json(scan) => scan.model(),
            Self::Form(scan) => scan.model(),
        }
    }

    /// Whether the client has requested a stream.
    pub fn streams(&self) -> bool {
        match self {
            Self::Json(scan) => scan.streams(),
            Self::Form(_) => false,
        }
    }

    /// Ends the scan at the end of the body.
    pub fn finish(self) -> Result<String, Malformed> {
        match self {
            Self::Json(scan) => scan.finish(),
            Self::Form(scan) => scan.finish(),
        }
    }
}
