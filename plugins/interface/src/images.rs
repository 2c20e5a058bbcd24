//! The registry of images that no user specifies.

/// The name of a fact of `pod-templating`: the registry of the mirror, as a JSON string. Without a mirror, the fact is absent, and images
/// come from the registries that publish them.
pub const IMAGE_MIRROR: &str = "imageMirror";

/// The name of the image in the mirror: the mirror replaces the registry, and the path stays the same.
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
