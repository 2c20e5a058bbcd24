use super::*;

#[test]
fn what_servers_read_differently_is_refused_with_its_place() {
    use Problem::{Capitals, Empty, Missing, NotAString, NotAnObject, Syntax, TooDeep, TooLong, Truncated, Twice};
    let deep = format!(r#"{{"a":{}"#, "[".repeat(200));
    let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(MAX_MODEL + 1));
    let salt = format!(r#"{{"cache_salt":"{}"}}"#, "x".repeat(MAX_SALT + 1));
    let model = Missing("`model`: set it to the name of one");
    for (body, problem, at) in [
        (r#"{"model":"a","model":"b"}"#, Twice, 19),
        (r#"{"model":"a","\u006dodel":"b"}"#, Twice, 24),
        (r#"{"model":"a","Model":"b"}"#, Capitals, 19),
        (r#"{"MODEL":"b"}"#, Capitals, 7),
        ("\u{feff}{\"model\":\"a\"}", NotAnObject, 0),
        ("{\0\"\0m\0", Syntax, 1),
        (r#"[{"model":"a"}]"#, NotAnObject, 0),
        (r#""model""#, NotAnObject, 0),
        ("--b0\r\n", NotAnObject, 0),
        ("", NotAnObject, 0),
        (" ", NotAnObject, 1),
        (r#"{"model":"a"}{"model":"b"}"#, Syntax, 13),
        (r#"{"model":"a"} x"#, Syntax, 14),
        (r#"{"model":"a",}"#, Syntax, 13),
        (r#"{"model":"a" "b":1}"#, Syntax, 13),
        (r#"{"model" "a"}"#, Syntax, 9),
        (r#"{model:"a"}"#, Syntax, 1),
        ("{'model':'a'}", Syntax, 1),
        (r#"{/**/"model":"a"}"#, Syntax, 1),
        (r#"{"a":[1},"model":"a"}"#, Syntax, 7),
        (r#"{"a":,"model":"a"}"#, Syntax, 5),
        (r#"{"a":1_,"model":"a"}"#, Syntax, 6),
        (r#"{"model":"\ud83d"}"#, Syntax, 16),
        (r#"{"model":"\ud83dx"}"#, Syntax, 16),
        (r#"{"model":"\ude00"}"#, Syntax, 15),
        (r#"{"model":"\x61"}"#, Syntax, 11),
        (r#"{"model":"\u00zz"}"#, Syntax, 14),
        (r#"{"model":1}"#, NotAString("model"), 9),
        (r#"{"model":null}"#, NotAString("model"), 9),
        (r#"{"model":["a"]}"#, NotAString("model"), 9),
        (r#"{"cache_salt":7,"model":"a"}"#, NotAString("cache_salt"), 14),
        (r#"{"model":""}"#, Empty, 9),
        (r#"{"model":"a"#, Truncated, 11),
        (r#"{"model":"a""#, Truncated, 12),
        (r#"{"model":"a","b":[{"#, Truncated, 19),
        (r#"{"model":"a","b":[{"\"#, Truncated, 21),
        (r#"{"messages":[]}"#, model, 15),
        ("{}", model, 2),
        (r#"{"model":"a"}"#, Missing("`messages`"), 13),
        (r#"{"model":"a","messages":null}"#, Missing("`messages`"), 29),
        (&deep, TooDeep, 133),
        (&long, TooLong("model", MAX_MODEL), 9),
        (&salt, TooLong("cache_salt", MAX_SALT), 14),
    ] {
        assert_eq!(read_json(Api::ChatCompletions, body), Err(problem.at(at)), "{body}");
    }
    for (body, at) in [(&b"{\"model\":\"a\xff\"}"[..], 11), (b"{\"model\":\"a\nb\"}", 11), (b"{\"mod\nel\":1}", 5)] {
        assert_eq!(read(Api::ChatCompletions, None, body), Err(Problem::Syntax.at(at)));
    }
}

#[test]
fn what_an_api_requires_is_named() {
    for (api, name) in [
        (Api::ChatCompletions, "`messages`"),
        (Api::Completions, "`prompt`"),
        (Api::Embeddings, "`input`"),
        (Api::Responses, "`input`"),
        (Api::Conversations, "`items`"),
        (Api::Images, "`prompt`"),
        (Api::Messages, "`messages`"),
        (Api::VllmGenerate, "`token_ids`"),
        (Api::SglangGenerate, "`input_ids` or `text`"),
    ] {
        assert_eq!(read_json(api, r#"{"model":"m"}"#), Err(Problem::Missing(name).at(13)));
    }
}

#[test]
fn a_salt_of_another_name_is_named_so() {
    assert_eq!(read_json(Api::SglangGenerate, r#"{"extra_key":["a"]}"#), Err(Problem::NotAString("extra_key").at(13)));
}

#[test]
fn long_keys_and_texts_end_where_they_end() {
    for end in [r"\\", r#"\""#, r#"\\\""#, r"\u0022"] {
        let long = format!("{}{end}", "x".repeat(300));
        let body = format!(r#"{{"{long}":"{long}","model":"m","messages":["{long}",[]]}}"#);
        assert_eq!(read_json(Api::ChatCompletions, &body).unwrap().model(), Some("m"), "{end}");
        let body = format!(r#"{{"model":"{long}","messages":[]}}"#);
        assert_eq!(read_json(Api::ChatCompletions, &body), Err(Problem::TooLong("model", MAX_MODEL).at(9)), "{end}");
    }
}

#[test]
fn invalid_utf8_elsewhere_is_for_the_server_to_judge() {
    assert!(read(Api::ChatCompletions, None, b"{\"model\":\"a\",\"messages\":[\"\xff\xfe\"],\"\xff\":1}").is_ok());
}

#[test]
fn a_body_over_the_limit_is_refused_as_soon_as_it_is() {
    let mut reader = RequestReader::new(Api::Completions, None).unwrap().limit(20);
    reader.read(br#"{"model":"m","prompt"#).unwrap();
    reader.read(b"").unwrap();
    assert_eq!(reader.read(b"\""), Err(Problem::TooLarge(20).at(20)));
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    let error = read_json(Api::ChatCompletions, r#"{"model":"a","Model":"b"}"#).unwrap_err();
    let expected = "the body has a field that differs from `model` by capitals alone: write it in lower case (byte 19)";
    assert_eq!(error.to_string(), expected);
}
