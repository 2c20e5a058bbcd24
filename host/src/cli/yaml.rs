//! YAML that people have written.

use serde_saphyr::UserMessageFormatter;

/// How it is read: yes and no are names, as in JSON.
macro_rules! as_written {
    () => {
        serde_saphyr::options! { with_snippet: false, strict_booleans: true }
    };
}
pub(super) use as_written;

/// What is wrong with it, without the place.
pub(super) fn said(error: &serde_saphyr::Error) -> String {
    let said = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    said.split_once(" at line ").map_or(said.as_str(), |(said, _)| said).replace('\n', " ")
}
