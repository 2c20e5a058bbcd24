//! The policy as an ordinary function: no Wasm is needed to test it.

use pointsman_plugin::{
    NoConfig,
    pod_templating::{Layer, Request},
};
use pointsman_pod_templating::template;

#[test]
fn the_template_stays_as_it_is_whatever_the_layers_say() {
    let user = Layer { name: "user".into(), content: r#"{"hostNetwork":true}"#.into() };
    let request = Request { layers: vec![user], template: r#"{"spec":{}}"#.into(), ..Request::default() };
    let answer = template(&NoConfig {}, request).unwrap();
    assert_eq!(answer.operations, []);
    let codes: Vec<_> = answer.reasons.iter().map(|reason| reason.code.as_str()).collect();
    assert_eq!(codes, ["Unchanged"]);
}
