use super::*;
use crate::prefix::BlockSize;

#[test]
fn the_longest_known_end_of_a_path_says_which_api_it_is() {
    for (path, expected) in [
        ("/v1/chat/completions", Some(Api::ChatCompletions)),
        ("/v1/chat/completions/render?x=/v1/responses", Some(Api::ChatCompletions)),
        ("/v1/completions", Some(Api::Completions)),
        ("/v1/completions/render", Some(Api::Completions)),
        ("/projects/a/embeddings?api-version=1", Some(Api::Embeddings)),
        ("/v1/responses#top", Some(Api::Responses)),
        ("/v1/conversations", Some(Api::Conversations)),
        ("/v1/images/generations", Some(Api::Images)),
        ("/v1/images/edits", Some(Api::Form)),
        ("/v1/audio/transcriptions", Some(Api::Form)),
        ("/v1/audio/translations", Some(Api::Form)),
        ("/v1/messages", Some(Api::Messages)),
        ("/v1/messages/count_tokens", Some(Api::Messages)),
        ("/inference/v1/generate", Some(Api::VllmGenerate)),
        ("/generate", Some(Api::SglangGenerate)),
        ("generate", Some(Api::SglangGenerate)),
        ("/v1/models", None),
        ("/v1/responses/resp_1", None),
        ("/v1/xcompletions", None),
        ("/v1/completions/", None),
        ("", None),
    ] {
        assert_eq!(Api::of_path(path), expected, "{path}");
    }
}

/// The expected data of a body, per API: model, stream, limit, count, salt, prompt, tokens.
type Row = (Api, &'static str, Option<&'static str>, bool, Option<u64>, Option<u64>, Option<&'static str>, &'static str, u64);

#[test]
fn a_body_of_each_api_is_read() {
    let rows: [Row; 16] = [
        (
            Api::ChatCompletions,
            r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":5,"max_completion_tokens":7,"n":2}"#,
            Some("m"),
            true,
            Some(7),
            Some(2),
            None,
            r#"[{"role":"user","content":"hi"}"#,
            8,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[],"cache_salt":"s\u0061lt","stream":false,"max_completion_tokens":null,"max_tokens":9,"model":"m"}"#,
            Some("m"),
            false,
            Some(9),
            None,
            Some("salt"),
            "[",
            0,
        ),
        (Api::Completions, r#"{"model":"m","prompt":"abcdefgh"}"#, Some("m"), false, None, None, None, "\"abcdefgh", 3),
        (Api::Completions, r#"{"model":"m","prompt":["a","b"]}"#, Some("m"), false, None, None, None, r#"["a","b""#, 2),
        (Api::Completions, r#"{"model":"m","prompt":[1, 22,333]}"#, Some("m"), false, None, None, None, "[1, 22,333", 3),
        (Api::Completions, r#"{"model":"m","prompt":[[1,2],[ ],[3]]}"#, Some("m"), false, None, None, None, "[[1,2],[ ],[3]", 3),
        (Api::Completions, r#"{"model":"m","prompt":null,"prompt_embeds":"ab=="}"#, Some("m"), false, None, None, None, "\"ab==", 2),
        (Api::Embeddings, r#"{"model":"m","input":[]}"#, Some("m"), false, None, None, None, "[", 0),
        (Api::Embeddings, r#"{"model":"m","messages":[{}]}"#, Some("m"), false, None, None, None, "[{}", 1),
        (
            Api::Responses,
            r#"{"input":"hi","model":"m","instructions":"be kind","max_output_tokens":3}"#,
            Some("m"),
            false,
            Some(3),
            None,
            None,
            r#""be kind"hi"#,
            3,
        ),
        (Api::Conversations, r#"{"model":"m","items":[{"a":1}]}"#, Some("m"), false, None, None, None, r#"[{"a":1}"#, 2),
        (Api::Images, r#"{"model":"m","prompt":"cat","n":4}"#, Some("m"), false, None, Some(4), None, "\"cat", 1),
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":1024,"messages":[{}],"system":"s","stream":true}"#,
            Some("m"),
            true,
            Some(1024),
            None,
            None,
            r#""s[{}"#,
            2,
        ),
        (
            Api::VllmGenerate,
            r#"{"token_ids":[1,2,3],"sampling_params":{"max_tokens":4,"x":{"max_tokens":5},"n":1},"model":null,"max_tokens":6}"#,
            None,
            false,
            Some(4),
            Some(1),
            None,
            "[1,2,3",
            3,
        ),
        (
            Api::SglangGenerate,
            r#"{"input_ids":[1,2],"sampling_params":{"max_new_tokens":8},"stream":true,"extra_key":"k"}"#,
            None,
            true,
            Some(8),
            None,
            Some("k"),
            "[1,2",
            2,
        ),
        (Api::SglangGenerate, r#"{"text":"abc","sampling_params":[],"model":"m"}"#, Some("m"), false, None, None, None, "\"abc", 1),
    ];
    for (api, body, model, streams, limit, count, salt, asked, tokens) in rows {
        let found = read_json(api, body).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!((found.model(), found.streams(), found.api(), found.length()), (model, streams, api, body.len()), "{body}");
        assert_eq!((found.max_tokens(), found.count(), found.cache_salt()), (limit, count, salt), "{body}");
        assert_eq!(String::from_utf8(prompt(&found, body.as_bytes())).unwrap(), asked, "{body}");
        assert_eq!(found.estimated_tokens(), tokens, "{body}");
    }
}

#[test]
fn odd_but_legal_json_is_read() {
    for body in [
        "\r\n\t {\t\"messages\"\n:\r[ ] , \"model\" : \"m\" } \n",
        r#"{"mod\u0065l":"\u006d","messages":[]}"#,
        r#"{"s":"\\","t":"\\\"","messages":[{"model":"x","a":"\"model\":\"y\""}],"model":"m","models":"z"}"#,
        r#"{"a":-1.5e+300,"b":1e999,"c":123456789012345678901234567890,"d":false,"e":{},"model":"m","messages":[[[]],{}]}"#,
        r#"{"":0,"a_key_that_is_longer_than_any_that_is_looked_for_model":1,"model":"m","messages":"text"}"#,
    ] {
        assert_eq!(read_json(Api::ChatCompletions, body).unwrap().model(), Some("m"), "{body}");
    }
    let found = read_json(Api::ChatCompletions, r#"{"model":"a\/\ud83d\ude00é\n\b\f\r\t\"\\","messages":[]}"#).unwrap();
    assert_eq!(found.model(), Some("a/😀é\n\u{8}\u{c}\r\t\"\\"));
    let deep = format!(r#"{{"model":"m","messages":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    assert!(read_json(Api::ChatCompletions, &deep).is_ok());
    let twice = r#"{"model":"m","stream":true,"stream":false,"messages":[1],"messages":["last"]}"#;
    let found = read_json(Api::ChatCompletions, twice).unwrap();
    assert_eq!((found.streams(), prompt(&found, twice.as_bytes())), (false, br#"["last""#.to_vec()));
}

#[test]
fn limits_that_aren_t_whole_numbers_are_none() {
    for number in ["-1", "1.5", "1e3", "\"7\"", "null", "true", "[1]", "{}", "123456789012345678901234567890"] {
        let body = format!(r#"{{"model":"m","messages":[],"max_tokens":{number}}}"#);
        assert_eq!(read_json(Api::ChatCompletions, &body).unwrap().max_tokens(), None, "{number}");
    }
    let body = format!(r#"{{"model":"m","messages":[],"max_tokens":{}}}"#, u64::MAX);
    assert_eq!(read_json(Api::ChatCompletions, &body).unwrap().max_tokens(), Some(u64::MAX));
}

#[test]
fn token_ids_are_counted_in_blocks_as_one_by_one() {
    for length in (0..200).chain([10_000]) {
        for separator in [",", ", ", " ,\n"] {
            let ids: Vec<String> = (0..length).map(|id: u32| (id * 7919 % 130_000).to_string()).collect();
            let body = format!(r#"{{"model":"m","prompt":[{}]}}"#, ids.join(separator));
            assert_eq!(RequestBody::read(Api::Completions, None, &[body.as_bytes()]).unwrap().estimated_tokens(), u64::from(length));
        }
    }
}

#[test]
fn another_model_leaves_every_other_byte_as_it_was() {
    for (body, model, expected) in [
        (
            r#"{ "z":9007199254740993,"model" : "a" ,"a":1.10, "messages":[]}"#,
            "b",
            r#"{ "z":9007199254740993,"model" : "b" ,"a":1.10, "messages":[]}"#,
        ),
        (
            r#"{"messages":[{"model":"a"}],"model":"\u0061"}"#,
            "a\"\\\n\u{1f}é",
            r#"{"messages":[{"model":"a"}],"model":"a\"\\\u000a\u001fé"}"#,
        ),
    ] {
        let found = read_json(Api::ChatCompletions, body).unwrap();
        assert_eq!(String::from_utf8(renamed(&found, body.as_bytes(), model).unwrap()).unwrap(), expected);
    }
    let body = r#"{"text":"a"}"#;
    let found = read_json(Api::SglangGenerate, body).unwrap();
    assert_eq!(found.with_model("m").unwrap_err().problem, Problem::Missing("`model` to replace"));
}

fn hashes(api: Api, body: &str) -> Vec<u64> {
    let size = BlockSize::exactly(4);
    let whole = read_json(api, body).unwrap().prefix_hashes(&[body.as_bytes()], "m", size);
    assert_eq!(read_json(api, body).unwrap().prefix_hashes(&chunks(body.as_bytes(), 5), "m", size), whole);
    whole
}

fn shared(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[test]
fn a_conversation_that_grows_shares_all_that_was_said() {
    let said = r#"{"role":"user","content":"a long question about trains"}"#;
    let short = hashes(Api::ChatCompletions, &format!(r#"{{"model":"m","messages":[{said}]}}"#));
    let long = hashes(Api::ChatCompletions, &format!(r#"{{"messages":[{said},{said}],"temperature":1,"model":"m"}}"#));
    assert_eq!((shared(&short, &long), short.len()), (short.len(), (said.len() + 1) / 16));
}

#[test]
fn other_tools_or_salts_share_nothing() {
    let tools = r#"[{"name":"a","description":"a tool with a long description"}"#;
    let body = |rest: &str| hashes(Api::ChatCompletions, &format!(r#"{{"model":"m","messages":["a long question about trains"]{rest}}}"#));
    let all = [
        body(""),
        body(r#","cache_salt":"s""#),
        body(r#","cache_salt":"t""#),
        body(&format!(r#","tools":{tools}]"#)),
        body(&format!(r#","tools":{tools},1]"#)),
    ];
    for (index, a) in all.iter().enumerate() {
        assert!(all[index + 1..].iter().all(|b| shared(a, b) == 0), "{index}");
    }
    let tools = |rest: &str| body(&format!(r#","tools":{tools}]{rest}"#));
    assert_eq!(tools(""), tools(r#","n":1"#));
}
