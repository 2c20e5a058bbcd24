//! YAML that people have written.

use serde_saphyr::UserMessageFormatter;

/// How it is read: yes and no are names, as in JSON. A file may well hold all services of a cluster, and CRDs are deep; what a few
/// lines of aliases can stand for stays bounded.
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

/// What is wrong with it, without the place.
pub(super) fn parse_error_message(error: &serde_saphyr::Error) -> String {
    let said = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    said.split_once(" at line ").map_or(said.as_str(), |(said, _)| said).replace('\n', " ")
}
