//! YAML written by users.

use serde_saphyr::UserMessageFormatter;

/// The parser's options: yes and no are names, as in JSON. A file may contain all services of a cluster, and CRDs are deep; the expansion
/// of aliases stays limited.
macro_rules! as_written {
    () => {
        serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            budget: serde_saphyr::budget! {
                max_documents: 1_000_000, max_nodes: 100_000_000, max_events: 200_000_000, max_depth: 250, max_total_scalar_bytes: 1 << 30,
            },
        }
    };
}
pub(super) use as_written;

/// The error message, without the place.
pub(super) fn parse_error_message(error: &serde_saphyr::Error) -> String {
    let said = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    said.split_once(" at line ").map_or(said.as_str(), |(said, _)| said).replace('\n', " ")
}
