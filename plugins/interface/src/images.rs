//! Where images come from that no user names.

/// The name of the fact that says which registry they come from: a JSON string. It is a fact of `pod-templating`, and absent where they come
/// from where they are published.
pub const IMAGE_MIRROR: &str = "imageMirror";

/// The image in that registry, which keeps its path without the registry of its own.
pub fn mirrored(image: &str, registry: &str) -> String {
    let path =
        image.split_once('/').filter(|(first, _)| first.contains(['.', ':']) || *first == "localhost").map_or(image, |(_, path)| path);
    format!("{registry}/{path}")
}

#[cfg(test)]
mod tests {
    use super::mirrored;

    #[test]
    fn an_image_keeps_its_path_tag_and_digest_and_loses_its_registry() {
        for (image, expected) in [
            ("vllm/vllm-openai:v0.27.1", "mirror.example.com/ai/vllm/vllm-openai:v0.27.1"),
            ("ghcr.io/llm-d/picker@sha256:00", "mirror.example.com/ai/llm-d/picker@sha256:00"),
            ("localhost/a:1", "mirror.example.com/ai/a:1"),
            ("registry:5000/a/b", "mirror.example.com/ai/a/b"),
            ("busybox", "mirror.example.com/ai/busybox"),
        ] {
            assert_eq!(mirrored(image, "mirror.example.com/ai"), expected);
        }
    }
}
