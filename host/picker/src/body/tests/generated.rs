use super::*;
use crate::prefix::BlockSize;
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

/// Few cases by default, many with `--full`.
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

/// A chat request as an object, and as text with or without white space.
fn chat() -> impl Strategy<Value = (Map<String, Value>, String)> {
    let fields = prop::collection::vec((prop::sample::select(&KEYS), value()), 0..8);
    (fields, ".{1,20}", any::<Index>(), value(), any::<bool>()).prop_map(|(fields, model, place, messages, pretty)| {
        let mut fields: Vec<(String, Value)> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        fields.push(("messages".to_owned(), if messages.is_null() { json!([]) } else { messages }));
        fields.insert(place.index(fields.len()), ("model".to_owned(), json!(model)));
        let mut object = Map::new();
        for (key, value) in fields {
            // A salt of another type is rejected.
            let value = if key == "cache_salt" && !value.is_string() { Value::Null } else { value };
            object.insert(key, value);
        }
        let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        (object, text.unwrap())
    })
}

/// A body in pieces of arbitrary lengths.
fn cut<'b>(body: &'b [u8], places: &[Index]) -> Vec<&'b [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(body.len() + 1)).chain([0, body.len()]).collect();
    places.sort_unstable();
    places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

/// Changes of a text: replaced, inserted or removed bytes.
fn damage() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 1..4)]
}

fn damaged(mut body: Vec<u8>, damage: &[(Index, u8, u8)]) -> Vec<u8> {
    for (place, byte, how) in damage {
        let at = place.index(body.len());
        match how {
            0 => body[at] = *byte,
            1 => body.insert(at, *byte),
            _ if body.len() > 1 => drop(body.remove(at)),
            _ => {}
        }
    }
    body
}

/// The fields of all APIs.
const FIELDS: [&str; 24] = [
    "messages",
    "prompt",
    "prompt_embeds",
    "input",
    "instructions",
    "items",
    "system",
    "tools",
    "token_ids",
    "input_ids",
    "text",
    "input_embeds",
    "sampling_params",
    "stream",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "cache_salt",
    "extra_key",
    "model",
    "models",
    "response",
    "x",
];

/// A request for an API, possibly without required fields or with forbidden ones.
fn request() -> impl Strategy<Value = (Api, Map<String, Value>)> {
    let prompts = ["messages", "prompt", "input", "items", "token_ids", "input_ids"];
    let sampling = (any::<u16>(), value()).prop_map(|(number, value)| json!({"max_tokens": number, "max_new_tokens": number, "n": value}));
    let field = prop_oneof![6 => (prop::sample::select(&FIELDS), value()), 1 => (Just("sampling_params"), sampling)];
    let fields = prop::collection::vec(field, 0..6);
    (prop::sample::select(&APIS), ".{1,20}", fields, value(), any::<bool>()).prop_map(move |(api, model, fields, prompt, is_strict)| {
        let mut object: Map<String, Value> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if is_strict {
            object.insert("model".to_owned(), json!(model));
            for salt in ["cache_salt", "extra_key"] {
                object.entry(salt).and_modify(|salt| *salt = salt.as_str().map_or(Value::Null, Value::from));
            }
            for key in prompts {
                object.insert(key.to_owned(), if prompt.is_null() { json!("hi") } else { prompt.clone() });
            }
        }
        (api, object)
    })
}

/// The data of a body apart from the model.
fn said(found: &RequestBody, body: &[u8]) -> (bool, [Option<u64>; 2], Option<String>, u64, Vec<u8>) {
    let salt = found.cache_salt().map(str::to_owned);
    (found.streams(), [found.max_tokens(), found.count()], salt, found.estimated_tokens(), prompt(found, body))
}

/// An event with a model, the usage and arbitrary objects.
fn event() -> impl Strategy<Value = String> {
    let name = prop_oneof![6 => ".{0,12}", 1 => (4_000..4_200_usize).prop_map(|length| "m".repeat(length))];
    (name, value(), any::<u32>(), 0..7_u8).prop_map(|(name, value, tokens, form)| {
        let usage =
            json!({"prompt_tokens": tokens, "input_tokens": value, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1}});
        let object = match form {
            0 => json!({"response": {"model": name, "usage": usage}}),
            1 => json!({"message": {"model": name}, "usage": usage}),
            2 => json!({"model": [name], "meta_info": usage}),
            _ => json!({"a": value, "model": name, "usage": usage}),
        };
        match form {
            3 => format!("event: x\n: {object}\ndata: {}\n\n", object.to_string().replace(',', ",\ndata: ")),
            4 => format!("data:{object}\r\rdata: [DONE]\r\r"),
            5 => format!("data: {object}\r\n"),
            _ => format!("data: {object}\n\n"),
        }
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_body_of_each_api_is_the_same_in_any_pieces_and_with_another_model(
        (api, object) in request(),
        pretty: bool,
        damage in damage(),
        model in ".{1,20}",
        places in cuts(),
    ) {
        let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
        let body = damaged(text, &damage);
        let content_type = Some("application/json");
        let whole = RequestBody::read(api, content_type, &[&body]);
        let pieces = cut(&body, &places);
        prop_assert_eq!(&RequestBody::read(api, content_type, &pieces), &whole);
        let Ok(found) = whole else { return Ok(()) };
        if damage.is_empty() {
            prop_assert_eq!(found.model(), object.get("model").and_then(Value::as_str));
        }
        let hashes = |found: &RequestBody, body: &[&[u8]]| found.prefix_hashes(body, "m", BlockSize::exactly(1));
        let known = hashes(&found, &pieces);
        prop_assert_eq!(&known, &hashes(&found, &[&body]));
        let edit = found.with_model(&model);
        prop_assert_eq!(edit.is_ok(), found.model().is_some());
        let Ok(edit) = edit else { return Ok(()) };
        let other = edit.pieces(&pieces).concat();
        prop_assert_eq!(other.len(), edit.new_length());
        let again = RequestBody::read(api, content_type, &[&other]).unwrap();
        prop_assert_eq!(again.model(), Some(&*model));
        prop_assert_eq!(said(&again, &other), said(&found, &body));
        prop_assert_eq!(hashes(&again, &[&other]), known);
    }

    #[test]
    fn a_form_is_the_same_in_any_pieces_and_with_another_model(
        // Some headers and names are close to the maximum length.
        parts in prop::collection::vec((prop_oneof![4 => Just(0_usize), 1 => 8_120..8_150_usize], "[-\r\na0]{0,40}"), 0..4),
        name in prop_oneof![4 => "[a-z.-]{1,9}", 1 => (250..262_usize).prop_map(|length| "n".repeat(length))],
        damage in damage(),
        model in prop_oneof![4 => ".{1,20}", 1 => "[-\r\n]{0,3}"],
        places in cuts(),
    ) {
        let content_type = Some("multipart/form-data; boundary=\"b0\"");
        let long = |(length, content): &(usize, String)| {
            format!("--b0\r\nContent-Disposition: form-data; name=\"{}\"; filename=x\r\n\r\n{content}\r\n", "f".repeat(*length))
        };
        let text = parts.iter().map(long).chain([forms::field("stream", "true"), forms::field("model", &name), "--b0--".to_owned()]);
        let body = damaged(text.collect::<String>().into_bytes(), &damage);
        let whole = RequestBody::read(Api::Form, content_type, &[&body]);
        let pieces = cut(&body, &places);
        prop_assert_eq!(&RequestBody::read(Api::Form, content_type, &pieces), &whole);
        // Byte by byte near the maximum length of headers.
        let (before, rest) = body.split_at(body.len().min(8_150));
        let (near, after) = rest.split_at(rest.len().min(120));
        let pieces = [chunks(before, 1_000), chunks(near, 1), vec![after]].concat();
        prop_assert_eq!(&RequestBody::read(Api::Form, content_type, &pieces), &whole);
        let Ok(found) = whole else { return Ok(()) };
        let Ok(edit) = found.with_model(&model) else { return Ok(()) };
        let again = RequestBody::read(Api::Form, content_type, &[&edit.pieces(&pieces).concat()]).unwrap();
        prop_assert_eq!((again.model(), again.streams()), (Some(&*model), found.streams()));
    }

    #[test]
    fn a_damaged_answer_is_the_same_in_any_pieces_and_little_of_it_is_held_back(
        events in prop::collection::vec(event(), 0..4),
        is_json: bool,
        damage in damage(),
        places in cuts(),
        end in any::<Index>(),
    ) {
        let text = events.concat();
        let text = if is_json { text.trim_start_matches("data:") } else { &text };
        let answer = if text.is_empty() { Vec::new() } else { damaged(text.as_bytes().to_vec(), &damage) };
        let framing = if is_json { Framing::Json } else { Framing::Events };
        let read = |pieces: &[&[u8]]| {
            let (mut usage, mut model) = (UsageReader::new(framing), ResponseModel::new(framing, "new"));
            let mut all = Vec::new();
            for piece in pieces {
                usage.read(piece);
                all.extend_from_slice(&model.read(piece));
            }
            (all, model.finish(), usage.usage(), usage.events())
        };
        let (mut all, held, ..) = read(&[&answer]);
        all.extend(held);
        let pieces = cut(&answer, &places);
        let (mut same, held, usage, number) = read(&pieces);
        same.extend(held);
        prop_assert_eq!(&same, &all);
        let (_, _, expected, events) = read(&[&answer]);
        prop_assert_eq!((usage, number), (expected, events));
        // At any position, and where a long name exceeds the buffer.
        let too_long = answer.windows(2).position(|pair| pair == b"mm").map_or(0, |at| at + 4_097);
        for end in [end.index(answer.len() + 1), too_long.min(answer.len())] {
            let (_, held, ..) = read(&cut(&answer[..end], &places));
            prop_assert!(held.len() <= 4_096, "{} bytes are held back", held.len());
        }
    }

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

    /// A damaged body gives the same data as a parser, or an error, but never another name.
    #[test]
    fn a_damaged_body_is_refused_or_read_as_a_parser_reads_it(
        (_, body) in chat(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 1..4),
        size in 1..20_usize,
    ) {
        let body = damaged(body.into_bytes(), &damage);
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

    /// A response with arbitrary objects is renamed as with a parser, and its usage is found.
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
