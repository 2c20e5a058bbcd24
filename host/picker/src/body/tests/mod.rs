//! Bodies of each API, as a whole and in pieces; rejected bodies; responses; and arbitrary bytes.

mod answers;
mod forms;
mod generated;
mod hostile;
mod requests;

use super::*;

fn chunks(body: &[u8], size: usize) -> Vec<&[u8]> {
    body.chunks(size.max(1)).collect()
}

/// Reads a body as a whole and in pieces, which must give the same result.
fn read(api: Api, content_type: Option<&str>, body: &[u8]) -> Result<RequestBody, BodyError> {
    let whole = RequestBody::read(api, content_type, &[body]);
    for size in [1, 2, 3, 7, 33] {
        assert_eq!(
            RequestBody::read(api, content_type, &chunks(body, size)),
            whole,
            "{} in pieces of {size}",
            String::from_utf8_lossy(body)
        );
    }
    whole
}

fn read_json(api: Api, body: &str) -> Result<RequestBody, BodyError> {
    read(api, None, body.as_bytes())
}

/// The body with another model. It is the same from the whole body and from pieces.
fn renamed(found: &RequestBody, body: &[u8], model: &str) -> Result<Vec<u8>, BodyError> {
    let edit = found.with_model(model)?;
    let whole = edit.pieces(&[body]).concat();
    for size in [1, 2, 5, 64] {
        assert_eq!(edit.pieces(&chunks(body, size)).concat(), whole);
    }
    assert_eq!(edit.new_length(), whole.len());
    Ok(whole)
}

/// The prompt's bytes. They are the same from the whole body and from pieces.
fn prompt(found: &RequestBody, body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    found.write_prompt(&[body], |piece| whole.extend_from_slice(piece));
    for size in [1, 3, 64] {
        let mut pieces = Vec::new();
        found.write_prompt(&chunks(body, size), |piece| pieces.extend_from_slice(piece));
        assert_eq!(pieces, whole);
    }
    whole
}
