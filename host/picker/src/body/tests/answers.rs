use super::*;

/// The token counts and events of a response, as a whole and in pieces.
fn used(framing: Framing, answer: &str) -> (Option<Usage>, u64) {
    let in_pieces = |size: usize| {
        let mut reader = UsageReader::new(framing);
        answer.as_bytes().chunks(size).for_each(|chunk| reader.read(chunk));
        (reader.usage(), reader.events())
    };
    let whole = in_pieces(answer.len().max(1));
    (1..40).for_each(|size| assert_eq!(in_pieces(size), whole, "{answer} in pieces of {size}"));
    whole
}

#[allow(clippy::unnecessary_wraps)] // Each row has one or none.
fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt, completion, cached })
}

#[test]
fn the_usage_of_an_object_is_read() {
    for (answer, expected) in [
        (r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#, usage(3, 4, None)),
        (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}"#, usage(3, 4, Some(2))),
        (r#"{"usage": {"input_tokens_details":{"cached_tokens":0},"input_tokens": 3, "output_tokens": 4}}"#, usage(3, 4, Some(0))),
        (
            r#"{"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":5,"output_tokens":4}}"#,
            usage(18, 4, Some(10)),
        ),
        (r#"{"usage":{"prompt_tokens":5,"total_tokens":5,"prompt_tokens_details":null},"data":[]}"#, usage(5, 0, None)),
        (r#"{"usage":{"total_tokens":5}}"#, usage(5, 0, None)),
        (r#"{"text":"a","meta_info":{"prompt_tokens":5,"completion_tokens":2,"cached_tokens":1}}"#, usage(5, 2, Some(1))),
        (r#"{"usage":null,"b":{"usage":{"prompt_tokens":1}},"text":"\"usage\":{\"prompt_tokens\":9}"}"#, None),
        (r#"{"usage":{"prompt_tokens":"many","completion_tokens":-1,"total_tokens":1.5}}"#, None),
        (r#"{"usage":{"prompt_tokens":99999999999999999999}}"#, None),
        (r#"{"usage":{"prompt_tokens":3}} and more"#, usage(3, 0, None)),
        ("no JSON", None),
        ("", None),
    ] {
        assert_eq!(used(Framing::Json, answer), (expected, 0), "{answer}");
    }
}

#[test]
fn the_usage_of_events_is_read_and_they_are_counted() {
    let anthropic = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
    );
    let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":9}}}\n\n";
    for (answer, expected, events) in [
        ("data: {\"a\":1}\n\ndata: {\"a\":\"data: {x}\"}\n\n: comment\n\ndata: [DONE]\n\n", None, 2),
        (
            "data: {\"usage\":null}\r\n\r\ndata:{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\r\n\r\ndata: [DONE]\r\n\r\n",
            usage(3, 9, None),
            2,
        ),
        ("data: {}\r\rdata: {\"usage\":{\"total_tokens\":3}}\r\r", usage(3, 0, None), 2),
        ("data: {\ndata: \"usage\":\ndata: {\"prompt_tokens\":3}}\n\n", usage(3, 0, None), 1),
        ("data: {}\ndata: {\"usage\":{\"prompt_tokens\":3}}\n", usage(3, 0, None), 2),
        ("data: {\"a\":\"\ndata: \",\"usage\":{\"prompt_tokens\":3}}\n\ndata: {}\n\n", None, 2),
        ("data: x\n\ndata: {\"usage\":{\"prompt_tokens\":3}}", usage(3, 0, None), 1),
        (anthropic, usage(25, 15, None), 3),
        (responses, usage(3, 9, None), 1),
    ] {
        assert_eq!(used(Framing::Events, answer), (expected, events), "{answer}");
    }
}

/// A response with another model, as a whole and in pieces.
fn renamed(framing: Framing, answer: &str, name: &str) -> String {
    let in_pieces = |size: usize| {
        let mut model = ResponseModel::new(framing, name);
        let mut all = Vec::new();
        answer.as_bytes().chunks(size).for_each(|chunk| all.extend_from_slice(&model.read(chunk)));
        all.extend(model.finish());
        String::from_utf8(all).unwrap()
    };
    let whole = in_pieces(answer.len().max(1));
    (1..40).for_each(|size| assert_eq!(in_pieces(size), whole, "{answer} in pieces of {size}"));
    whole
}

#[test]
fn the_model_of_an_answer_is_renamed_and_nothing_else() {
    for answer in [
        r#"{ "id":1,"model" : "OLD" , "choices":[{"model":"old","text":"\"model\":\"old\""}],"n":9007199254740993}"#,
        r#"{"response":{"model":"OLD","x":{"model":"old"}},"message":{"model":"OLD"},"mod\u0065l":"OLD"}"#,
        r#"{"model":null,"response":"model","message":["model"]}"#,
        r#"{"model":"OLD"} {"model":"old"}"#,
        r#"{"model":"old"#,
        r#"["model","old"]"#,
        "no JSON",
        "",
    ] {
        let sent = answer.replace("OLD", r#"o\u006cd\" }"#);
        assert_eq!(renamed(Framing::Json, &sent, "new\"é"), answer.replace("OLD", r#"new\"é"#));
    }
    let long = format!(r#"{{"model":"{}","a":1}}"#, "x".repeat(5000));
    assert_eq!(renamed(Framing::Json, &long, "m"), long);
}

#[test]
fn the_model_of_each_event_is_renamed() {
    let events = concat!(
        ": model\n\nevent: message_start\ndata: {\"message\":{\"model\":\"OLD\"}}\n\n",
        "data: {\"model\":\"OLD\",\"choices\":[]}\r\n\r\nmodel: {\"model\":\"old\"}\n\n",
        "data: {\"model\":\"old\ndata: \"}\n\ndata: {\"response\":{\"model\":\"OLD\"}}\n\ndata: [DONE]\n\ndata: {\"model\":\"old",
    );
    assert_eq!(renamed(Framing::Events, &events.replace("OLD", "old"), "new"), events.replace("OLD", "new"));
}

#[test]
fn little_is_kept_of_an_endless_answer() {
    for framing in [Framing::Json, Framing::Events] {
        let mut model = ResponseModel::new(framing, "m");
        let mut usage = UsageReader::new(framing);
        let mut passed = 0;
        for chunk in [&b"data: {\"model\":\""[if framing == Framing::Json { 6 } else { 0 }..], &vec![b'x'; 1 << 20]] {
            passed += model.read(chunk).len();
            usage.read(chunk);
        }
        assert!(passed >= 1 << 20 && model.finish().is_empty() && usage.usage().is_none());
    }
    let chunk = b"data: {\"a\":1}\n\n";
    assert!(matches!(ResponseModel::new(Framing::Events, "m").read(chunk), std::borrow::Cow::Borrowed(same) if same == chunk));
}

#[test]
fn the_content_type_says_how_an_answer_is_written() {
    assert_eq!(Framing::of_content_type(Some("Text/Event-Stream; charset=utf-8")), Framing::Events);
    assert_eq!([None, Some("application/json"), Some("")].map(Framing::of_content_type), [Framing::Json; 3]);
}
