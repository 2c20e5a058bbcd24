use super::*;
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

const APIS: [Api; 10] = [
    Api::ChatCompletions,
    Api::Completions,
    Api::Embeddings,
    Api::Responses,
    Api::Conversations,
    Api::Images,
    Api::Form,
    Api::Messages,
    Api::VllmGenerate,
    Api::SglangGenerate,
];

const KEYS: [&str; 10] = ["messages", "tools", "stream", "n", "max_tokens", "max_completion_tokens", "cache_salt", "prompt", "system", "x"];

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 100_000 } else { 1_000 })
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just("model".to_owned()), Just("\"model\":\"x\"".to_owned()), ".{0,12}", r#"[\\"{}\[\],:]{0,8}"#];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
        prop::collection::vec(any::<u32>(), 0..40).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![Just("model".to_owned()), ".{0,6}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// A chat request as an object, and as text with or without spaces.
fn chat() -> impl Strategy<Value = (Map<String, Value>, String)> {
    let fields = prop::collection::vec((prop::sample::select(&KEYS), value()), 0..8);
    (fields, ".{1,20}", any::<Index>(), value(), any::<bool>()).prop_map(|(fields, model, place, messages, pretty)| {
        let mut fields: Vec<(String, Value)> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        fields.push(("messages".to_owned(), if messages.is_null() { json!([]) } else { messages }));
        fields.insert(place.index(fields.len()), ("model".to_owned(), json!(model)));
        let mut object = Map::new();
        for (key, value) in fields {
            // A salt of another kind is refused.
            let value = if key == "cache_salt" && !value.is_string() { Value::Null } else { value };
            object.insert(key, value);
        }
        let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        (object, text.unwrap())
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn of_any_object_it_finds_what_a_json_parser_finds((object, body) in chat(), model in ".{0,20}", size in 1..40_usize) {
        let found = RequestBody::read(Api::ChatCompletions, None, &chunks(body.as_bytes(), size)).unwrap();
        let field = |key: &str| object.get(key).unwrap_or(&Value::Null);
        prop_assert_eq!(found.model(), field("model").as_str());
        prop_assert_eq!(found.streams(), field("stream").as_bool().unwrap_or(false));
        prop_assert_eq!(found.max_tokens(), field("max_completion_tokens").as_u64().or(field("max_tokens").as_u64()));
        prop_assert_eq!(found.count(), field("n").as_u64());
        prop_assert_eq!(found.cache_salt(), field("cache_salt").as_str());
        let tools = found.tools().map_or(Value::Null, |place| serde_json::from_str(&body[place]).unwrap());
        prop_assert_eq!(&tools, field("tools"));
        let mut sent = prompt(&found, body.as_bytes());
        if !tools.is_null() {
            sent.drain(..8 + found.tools().unwrap().len());
        }
        sent.extend(match field("messages") {
            Value::String(_) => "\"",
            Value::Array(_) => "]",
            Value::Object(_) => "}",
            _ => "",
        }.bytes());
        prop_assert_eq!(&serde_json::from_slice::<Value>(&sent).unwrap(), field("messages"));

        let mut expected = object.clone();
        expected["model"] = json!(model);
        let renamed: Map<String, Value> = serde_json::from_slice(&renamed(&found, body.as_bytes(), &model).unwrap()).unwrap();
        prop_assert_eq!(renamed, expected);
    }

    /// What is found in a damaged body is what a parser finds in it, if it finds anything: never another name.
    #[test]
    fn a_damaged_body_is_refused_or_read_as_a_parser_reads_it(
        (_, body) in chat(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 1..4),
        size in 1..20_usize,
    ) {
        let mut body = body.into_bytes();
        for (place, byte, how) in damage {
            let at = place.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ if body.len() > 1 => drop(body.remove(at)),
                _ => {}
            }
        }
        let found = RequestBody::read(Api::ChatCompletions, None, &chunks(&body, size));
        prop_assert_eq!(&found, &RequestBody::read(Api::ChatCompletions, None, &[&body]));
        if let (Ok(found), Ok(parsed)) = (&found, serde_json::from_slice::<Value>(&body)) {
            prop_assert_eq!(found.model(), parsed["model"].as_str());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(body in "[{}\\[\\]\":,\\\\a-z0-9 \r\n-]{0,60}", bytes in any::<Vec<u8>>(), size in 1..9_usize) {
        for body in [body.as_bytes(), &bytes] {
            for api in APIS {
                read(api, Some("multipart/form-data; boundary=a"), body).ok();
            }
            for framing in [Framing::Json, Framing::Events] {
                let mut usage = UsageReader::new(framing);
                let mut model = ResponseModel::new(framing, "m");
                let mut all = Vec::new();
                for chunk in body.chunks(size) {
                    usage.read(chunk);
                    all.extend_from_slice(&model.read(chunk));
                }
                all.extend(model.finish());
                let mut whole = ResponseModel::new(framing, "m");
                let mut expected = whole.read(body).into_owned();
                expected.extend(whole.finish());
                prop_assert_eq!(all, expected);
            }
        }
    }

    #[test]
    fn the_pieces_of_a_form_make_no_difference_even_if_it_is_damaged(
        contents in prop::collection::vec("[-\r\na0x]{0,40}", 0..4),
        damage in prop::collection::vec((any::<Index>(), prop::sample::select(b"-\r\n\":;a0m ".to_vec()), any::<bool>()), 0..4),
        size in 1..30_usize,
    ) {
        let parts: Vec<String> = contents.iter().map(|content| forms::field("file", content)).chain([forms::field("model", "whisper")]).collect();
        let mut form = format!("{}--b0--\r\n", parts.concat()).into_bytes();
        for (place, byte, inserts) in damage {
            let at = place.index(form.len());
            if inserts { form.insert(at, byte) } else { form[at] = byte }
        }
        let read = |size| RequestBody::read(Api::Form, Some("multipart/form-data; boundary=b0"), &chunks(&form, size));
        let (whole, pieces) = (read(form.len()), read(size));
        prop_assert_eq!(whole.as_ref().map_err(|error| error.problem), pieces.as_ref().map_err(|error| error.problem));
        if let Ok(found) = whole {
            let renamed = renamed(&found, &form, "other").unwrap();
            let again = RequestBody::read(Api::Form, Some("multipart/form-data; boundary=b0"), &[&renamed]).unwrap();
            prop_assert_eq!(again.model(), Some("other"));
        }
    }

    /// An answer whose objects are anything is renamed as a parser would do it, and its usage is found.
    #[test]
    fn the_pieces_of_an_answer_make_no_difference(
        objects in prop::collection::vec(value(), 1..4),
        tokens in (any::<u32>(), any::<u32>()),
        size in 1..30_usize,
        ends in prop::sample::select(vec!["\n", "\r\n", "\r"]),
    ) {
        let object = |model: &str, value: &Value| json!({
            "a": value, "model": model, "usage": {"prompt_tokens": tokens.0, "completion_tokens": tokens.1}, "z": value,
        });
        let stream = |model: &str| objects.iter().fold(String::new(), |all, value| format!("{all}data: {}{ends}{ends}", object(model, value)));
        let sent = stream("old");
        let mut usage = UsageReader::new(Framing::Events);
        let mut model = ResponseModel::new(Framing::Events, "new name");
        let mut all = Vec::new();
        for chunk in sent.as_bytes().chunks(size) {
            usage.read(chunk);
            all.extend_from_slice(&model.read(chunk));
        }
        all.extend(model.finish());
        prop_assert_eq!(String::from_utf8(all).unwrap(), stream("new name"));
        let expected = Usage { prompt: tokens.0.into(), completion: tokens.1.into(), cached: None };
        prop_assert_eq!((usage.usage(), usage.events()), (Some(expected), objects.len() as u64));
    }
}
