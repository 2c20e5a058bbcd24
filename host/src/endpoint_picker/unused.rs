//! The settings of a configuration that this picker parses but doesn't use yet.

use pointsman_picker::config::{Parser, PickerConfig, SESSION_HEADER, ScorerKind, SessionBinding};

/// A sentence with the remedy for each.
pub fn unused(config: &PickerConfig) -> Vec<String> {
    let profiles = [Some(config.profiles.primary()), config.profiles.prefill()];
    let scorers = profiles.into_iter().flatten().flat_map(|profile| &profile.scorers);
    let sessions = scorers.filter_map(|scorer| match &scorer.kind {
        ScorerKind::SessionAffinity(affinity) => match &affinity.binding {
            SessionBinding::Token { header } if header == SESSION_HEADER => None,
            SessionBinding::Token { header } => Some(format!(
                "session-affinity-scorer has no effect, because sessions come back by the header {SESSION_HEADER} alone, and not by {header}: \
                 set encodedEndpointHeaderConfig.header to {SESSION_HEADER}, or remove it"
            )),
            SessionBinding::Identifier { .. } => Some(
                "session-affinity-scorer has no effect, because identifiers that clients choose aren't read: leave out its strategy".to_owned(),
            ),
        },
        _ => None,
    });
    let parsers = config.parsers.iter().filter_map(|parser| {
        let name = match parser {
            Parser::VllmGrpc => "vllmgrpc-parser",
            Parser::VertexAi => "vertexai-parser",
            _ => return None,
        };
        Some(format!("{name} reads nothing: add passthrough-parser, so that its requests are placed by load"))
    });
    sessions.chain(parsers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_said_with_a_remedy() {
        const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: vertexai-parser
- type: session-affinity-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-scorer}]
requestHandler:
  parsers: [{pluginRef: vertexai-parser}]
";
        let (config, _) = PickerConfig::read(CONFIG).unwrap();
        assert_eq!(unused(&config), ["vertexai-parser reads nothing: add passthrough-parser, so that its requests are placed by load"]);
        assert!(unused(&PickerConfig::default()).is_empty());
    }
}
