//! Invalid requests, and requests that two servers could parse in two ways, sent as bytes. The tests check the status, and that no
//! unintended byte reaches a backend.

use super::{
    backend::Backend,
    rig::{Rig, Setup, open},
};
use pointsman::gateway::{catalog::AllowList, limits::Limits};
use std::{collections::BTreeSet, ops::Add, time::Duration};

const LINE: &str = "POST /v1/chat/completions HTTP/1.1\r\n";
const BODY: &str = r#"{"model":"a"}"#;

/// A request that is smuggled after another one.
const HIDDEN: &str = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{\"model\":\"secret\"}";

struct Case {
    name: String,
    bytes: Vec<u8>,
    /// Whether the client shuts down its side.
    ends: bool,
    /// The statuses of the responses; empty if the connection is closed without one.
    statuses: Vec<u16>,
    /// The number of complete requests that the backend receives.
    passed: usize,
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>, statuses: &[u16], passed: usize) {
        let (name, bytes, statuses) = (name.to_owned(), bytes.into(), statuses.to_vec());
        self.0.push(Case { name, bytes, ends: false, statuses, passed });
    }

    /// A request that its client breaks off.
    fn cut(&mut self, name: &str, bytes: impl Into<Vec<u8>>, statuses: &[u16]) {
        self.add(name, bytes, statuses, 0);
        if let Some(case) = self.0.last_mut() {
            case.ends = true;
        }
    }

    /// A request with these headers and this body, whose connection is closed after the response.
    fn request(&mut self, name: &str, headers: &str, body: &str, status: u16) {
        let bytes = format!("{LINE}Host: x\r\nConnection: close\r\n{headers}\r\n{body}");
        self.add(name, bytes, &[status], usize::from(status == 200));
    }

    /// A JSON body.
    fn json(&mut self, name: &str, body: &str, status: u16) {
        self.request(name, &format!("Content-Length: {}\r\n", body.len()), body, status);
    }

    /// A path.
    fn path(&mut self, path: &str, status: u16) {
        let bytes = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{BODY}");
        self.add(&format!("the path {path}"), bytes, &[status], usize::from(status == 200));
    }

    /// A chunked body, as it is sent.
    fn chunked(&mut self, name: &str, chunks: &str, status: u16) {
        self.request(name, "Transfer-Encoding: chunked\r\n", chunks, status);
    }
}

fn lengths_and_codings(cases: &mut Cases) {
    let length = "Content-Length: 13\r\n";
    let whole = "d\r\n{\"model\":\"a\"}\r\n0\r\n\r\n";
    cases.request("a valid request", length, BODY, 200);
    cases.chunked("valid chunks", whole, 200);
    cases.chunked(
        "valid chunks of one byte",
        &BODY.chars().fold(String::new(), |all, c| all + "1\r\n" + &c.to_string() + "\r\n").add("0\r\n\r\n"),
        200,
    );
    cases.request("two equal lengths", "Content-Length: 13\r\nContent-Length: 13\r\n", BODY, 200);
    cases.request("two different lengths", "Content-Length: 13\r\nContent-Length: 14\r\n", BODY, 400);
    cases.request("two lengths in one header", "Content-Length: 13, 13\r\n", BODY, 400);
    for value in ["+13", "-1", "0x0d", "13a", "1 3", "13.0", "", " ", "99999999999999999999999"] {
        cases.request(&format!("the length {value:?}"), &format!("Content-Length: {value}\r\n"), BODY, 400);
    }
    cases.request("the largest length", "Content-Length: 18446744073709551615\r\n", BODY, 431);
    // The transfer coding takes precedence, the connection is closed, and the bytes after the body are never read.
    let both = format!("{whole}{HIDDEN}");
    cases.request("a length and then a coding", &format!("{length}Transfer-Encoding: chunked\r\n"), &both, 200);
    cases.request("a coding and then a length", &format!("Transfer-Encoding: chunked\r\n{length}"), &both, 200);
    cases.add(
        "a length and a coding on a connection that should stay",
        format!("{LINE}Host: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{both}"),
        &[200],
        1,
    );
    for value in [
        "identity",
        "gzip",
        "chunked, identity",
        "gzip, chunked",
        "chunked, chunked",
        "xchunked",
        "chunked;q=1",
        "\"chunked\"",
        "chunk",
        "",
    ] {
        cases.request(&format!("the coding {value:?}"), &format!("Transfer-Encoding: {value}\r\n"), whole, 400);
    }
    cases.request("the coding in capitals", "Transfer-Encoding: CHUNKED\r\n", whole, 200);
    cases.request("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", whole, 400);
    cases.request("a coding with a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", whole, 400);
    cases.request("a coding with a space before the colon", "Transfer-Encoding : chunked\r\n", whole, 400);
    cases.request("a folded coding", "Transfer-Encoding:\r\n chunked\r\n", whole, 400);
    cases.add(
        "a coding in HTTP/1.0",
        format!("POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{whole}"),
        &[400],
        0,
    );
    cases.request("a compressed body", "Content-Encoding: gzip\r\nContent-Length: 13\r\n", BODY, 400);
    cases.cut("a body that ends too early", format!("{LINE}Host: x\r\nContent-Length: 100\r\n\r\n{BODY}"), &[400]);
    cases.add("a body that is too large", format!("{LINE}Host: x\r\nContent-Length: 5000000\r\n\r\n{{"), &[413], 0);
}

fn chunks(cases: &mut Cases) {
    for (name, chunks) in [
        ("a size that isn't hexadecimal", "g\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a size with a sign", "+d\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a negative size", "-d\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a size with 0x", "0xd\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a size that overflows", "1000000000000000d\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("no size", "\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a size that ends with a bare line feed", "d\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a chunk longer than its size", "c\r\n{\"model\":\"a\"}\r\n0\r\n\r\n"),
        ("a chunk that ends with a bare line feed", "d\r\n{\"model\":\"a\"}\n0\r\n\r\n"),
    ] {
        cases.chunked(name, chunks, 400);
    }
    cases.cut("chunks that end too early", format!("{LINE}Host: x\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{BODY}\r\n"), &[400]);
    cases.chunked("an extension of a chunk", "d;a=b\r\n{\"model\":\"a\"}\r\n0\r\n\r\n", 200);
    cases.chunked("a trailer, which doesn't pass", "d\r\n{\"model\":\"a\"}\r\n0\r\nAuthorization: x\r\n\r\n", 200);
}

fn heads(cases: &mut Cases) {
    let rest = format!("Connection: close\r\nContent-Length: 13\r\n\r\n{BODY}");
    cases.add("no host", format!("{LINE}{rest}"), &[400], 0);
    for host in ["a\r\nHost: b", "a\r\nHost: a", "", "a b", "a/b", "user@a", "a\tb", "a?b", "a,b"] {
        cases.add(&format!("the host {host:?}"), format!("{LINE}Host: {host}\r\n{rest}"), &[400], 0);
    }
    for (name, line) in [
        ("a folded header", "X-A: b\r\n c"),
        ("a header without a colon", "X-A"),
        ("a header without a name", ": b"),
        ("a header with a space in its name", "X A: b"),
        ("a header with a space before its colon", "X-A : b"),
        ("a header with a null", "X-A: \0"),
        ("a header with a bare carriage return", "X-A: b\rX-B: c"),
        ("a header with a control character in its name", "X-\x01A: b"),
        ("an expectation that nobody meets", "Expect: 200-ok"),
        ("two types of the body", "Content-Type: application/json\r\nContent-Type: multipart/form-data; boundary=x"),
    ] {
        cases.add(name, format!("{LINE}Host: x\r\n{line}\r\n{rest}"), &[400], 0);
    }
    for (name, line) in [
        ("no version", "POST /v1/chat/completions"),
        ("another protocol", "POST /v1/chat/completions HTTPS/1.1"),
        ("version 1.2", "POST /v1/chat/completions HTTP/1.2"),
        ("version 9.9", "POST /v1/chat/completions HTTP/9.9"),
        ("two spaces", "POST  /v1/chat/completions HTTP/1.1"),
        ("a tab", "POST\t/v1/chat/completions HTTP/1.1"),
        ("a space in the path", "POST /v1/chat/com pletions HTTP/1.1"),
        ("a null in the path", "POST /v1/chat\0 HTTP/1.1"),
        ("a method that isn't a token", "PO(ST /v1/chat/completions HTTP/1.1"),
    ] {
        cases.add(name, format!("{line}\r\nHost: x\r\n{rest}"), &[400], 0);
    }
    for (method, status) in [("GET", 405), ("OPTIONS", 405), ("TRACE", 405), ("HEAD", 405)] {
        cases.add(&format!("the method {method}"), format!("{method} /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{rest}"), &[status], 0);
    }
    cases.add("a tunnel", "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &[405], 0);
    cases.add("bytes that aren't HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01", &[400], 0);
    cases.add("too many headers", format!("{LINE}Host: x\r\n{}{rest}", "X-A: b\r\n".repeat(200)), &[431], 0);
    cases.add("headers that are too long", format!("{LINE}Host: x\r\nX-A: {}\r\n{rest}", "x".repeat(200_000)), &[431], 0);
    cases.add("a path that is too long", format!("POST /v1/{} HTTP/1.1\r\nHost: x\r\n{rest}", "x".repeat(9000)), &[400], 0);
    cases.cut("a head that ends too early", format!("{LINE}Host: x\r\nX-A"), &[]);
    cases.cut("HTTP/2's preface alone", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[]);
    cases.add("a head without an end", format!("{LINE}Host: x\r\n"), &[], 0);
}

fn paths(cases: &mut Cases) {
    for path in ["/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/..%2fmetrics", "/v1//chat", "/v1/chat;x", "/v1/\\..\\x", "/v1/%00", "*"] {
        cases.path(path, 400);
    }
    for path in ["/", "/metrics", "/healthz", "/v1", "/admin", "/v1/load_lora_adapter", "/v3/x"] {
        cases.path(path, 404);
    }
    cases.path("http://169.254.169.254/v1/chat/completions", 200);
    cases.path("http://evil/metrics", 404);
    cases.path("//evil/v1/chat/completions", 400);
}

fn bodies(cases: &mut Cases) {
    for body in [
        "",
        "[]",
        "{}",
        "null",
        r#"{"model":1}"#,
        r#"{"model":""}"#,
        r#"{"model":"a","model":"secret"}"#,
        r#"{"model":"a","Model":"secret"}"#,
        r#"{"model":"a","\u006dodel":"secret"}"#,
        r#"{"model":"a"}{"model":"secret"}"#,
        r#"{"model":["a"]}"#,
        "\u{feff}{\"model\":\"a\"}",
        "model=a",
    ] {
        cases.json(&format!("the body {body}"), body, 400);
    }
    cases.json("a model that this caller may not use", r#"{"model":"secret"}"#, 404);
    cases.json("a model that is a path", r#"{"model":"../../secret"}"#, 404);
    cases.json("a model that is a URL", r#"{"model":"http://169.254.169.254/"}"#, 404);
    cases.json("a model with a line end", r#"{"model":"a\r\nHost: secret"}"#, 404);
    let form = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsecret\r\n--x--\r\n";
    let headers = format!("Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {}\r\n", form.len());
    cases.request("a form with two models", &headers, form, 400);
}

fn sequences(cases: &mut Cases) {
    let first = format!("{LINE}Host: x\r\nContent-Length: 13\r\n\r\n{BODY}");
    let last = format!("{LINE}Host: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{BODY}");
    cases.add("two requests at once", format!("{first}{last}"), &[200, 200], 2);
    cases.add("a request and one for another model", format!("{first}{HIDDEN}{last}"), &[200, 404, 200], 2);
    cases.add("a length that is too short", format!("{LINE}Host: x\r\nContent-Length: 12\r\n\r\n{BODY}{HIDDEN}"), &[400, 400], 0);
    cases.add(
        "a body of a GET",
        format!("GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{HIDDEN}{last}", HIDDEN.len()),
        &[200, 200],
        1,
    );
    cases.add("nothing behind the last request", format!("{last}{HIDDEN}"), &[200], 1);
    cases.add(
        "an upgrade to HTTP/2, which isn't taken",
        format!("{LINE}Host: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 13\r\n\r\n{BODY}"),
        &[200],
        1,
    );
}

fn statuses(answer: &str) -> Vec<u16> {
    let codes = answer.match_indices("HTTP/1.").filter_map(|(place, _)| answer.get(place + 9..place + 12)?.parse().ok());
    codes.collect()
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_reaches_no_backend_that_isn_t_meant() {
    let mut cases = Cases::default();
    for add in [lengths_and_codings, chunks, heads, paths, bodies, sequences] {
        add(&mut cases);
    }
    assert!(cases.0.len() >= 60, "{} cases", cases.0.len());
    let (backend, secret) = (Backend::start().await, Backend::start().await);
    let limits = Limits { body_bytes: 1 << 20, header_timeout: Duration::from_secs(1), ..Limits::default() };
    let rig = Rig::start(Setup { limits, ..Setup::default() }).await;
    rig.set("a", open(&backend.url()));
    let nobody = AllowList { namespaces: Some(BTreeSet::new()), selector: None };
    rig.define("secret", open(&secret.url()), nobody);
    let mut wrong = Vec::new();
    for case in &cases.0 {
        let before = backend.seen().iter().filter(|seen| seen.body.is_some()).count();
        let answer = rig.raw(&case.bytes, case.ends).await;
        let passed = backend.seen().iter().filter(|seen| seen.body.is_some()).count() - before;
        let statuses = statuses(&answer);
        if (&statuses, passed) != (&case.statuses, case.passed) {
            wrong.push(format!("{}: {statuses:?}, {passed} passed, rather than {:?} and {}", case.name, case.statuses, case.passed));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.0.len(), wrong.join("\n"));
    assert_eq!(secret.connections(), 0);
    for seen in backend.seen() {
        assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
        assert!(!seen.headers.contains_key("transfer-encoding") || !seen.headers.contains_key("content-length"), "{seen:?}");
        assert!(!seen.headers.contains_key("upgrade") && seen.headers.get_all("host").iter().count() == 1, "{seen:?}");
    }
}
