use super::*;
use crate::body::form::{MAX_BOUNDARY, MAX_HEADERS, MAX_PARTS};

const TYPE: &str = "multipart/form-data; boundary=b0";

fn part(headers: &str, content: &str) -> String {
    format!("--b0\r\n{headers}\r\n\r\n{content}\r\n")
}

pub(super) fn field(name: &str, content: &str) -> String {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
}

fn form(parts: &[String]) -> String {
    format!("{}--b0--\r\n", parts.concat())
}

fn found(body: &str) -> Result<RequestBody, BodyError> {
    read(Api::Form, Some(TYPE), body.as_bytes())
}

#[test]
fn the_model_is_found_and_replaced_before_and_behind_a_file() {
    let headers = "Content-Disposition: form-data; name=\"file\"; filename=\"a b.wav\"\r\nContent-Type: audio/wav";
    let file = || part(headers, "RIFF\r\n--b\r\n--b1 name=\"model\"\r\n\r\nother");
    let model = || field("model", "whisper");
    let plain = || part("content-disposition:form-data;name=model\r\ncontent-type: text/plain; charset=UTF-8", "whisper");
    let long = || field("file", &format!("{}\r\n--b", "x".repeat(3 * MAX_HEADERS)));
    for parts in [vec![model(), file()], vec![file(), model()], vec![field("n", ""), plain()], vec![long(), model(), field("models", "x")]]
    {
        let body = form(&parts);
        let found = found(&body).unwrap();
        assert_eq!((found.model(), found.streams(), found.estimated_tokens()), (Some("whisper"), false, 0), "{parts:?}");
        let expected = body.replacen("\r\n\r\nwhisper\r\n", "\r\n\r\nw-é\r\n", 1);
        assert_eq!(String::from_utf8(renamed(&found, body.as_bytes(), "w-é").unwrap()).unwrap(), expected);
        for name in ["a\r\nb", "--b0", ""] {
            assert_eq!(found.with_model(name).unwrap_err().problem, Problem::Unwritable);
        }
    }
    assert!(found(form(&[model()]).trim_end()).is_ok(), "without an end of the last line");
}

#[test]
fn a_form_says_whether_it_asks_for_a_stream() {
    for (word, expected) in [("true", true), ("True", true), ("1", true), ("false", false), ("", false), (&"t".repeat(9000), false)] {
        assert_eq!(found(&form(&[field("stream", word), field("model", "m")])).unwrap().streams(), expected, "{word}");
    }
}

#[test]
fn an_edit_of_images_may_be_json() {
    let body = br#"{"model":"m","images":[{"image_url":"x"}],"prompt":"cat"}"#;
    assert_eq!(read(Api::Form, Some("Application/JSON; charset=utf-8"), body).unwrap().model(), Some("m"));
    assert_eq!(read(Api::Form, None, body).unwrap_err(), Problem::Boundary.at(0));
}

#[test]
fn what_servers_read_differently_is_refused() {
    use Problem::{Capitals, Empty, Form, FormTruncated, HeadersTooLong, Missing, NotAString, TooLong, TooManyParts, Twice};
    let disposition = |rest: &str| part(&format!("Content-Disposition: form-data; {rest}"), "a");
    let missing = Missing("`model`: set it to the name of one");
    for (form, expected) in [
        (form(&[field("model", "a"), field("model", "b")]), Twice),
        (form(&[field("Model", "a")]), Capitals),
        (form(&[field("model", "")]), Empty),
        (form(&[field("model", &"x".repeat(MAX_MODEL + 1))]), TooLong("model", MAX_MODEL)),
        (form(&[field("file", "a")]), missing),
        (form(&[]), missing),
        (form(&[disposition("name=\"model\"; filename=\"m\"")]), NotAString("model")),
        (form(&[part("Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64", "YQ==")]), NotAString("model")),
        (
            form(&[part("Content-Disposition: form-data; name=\"model\"\r\nContent-Type: text/plain; charset=utf-16", "a")]),
            NotAString("model"),
        ),
        (form(&[disposition("name=\"a\"; name=\"model\"")]), Form),
        (form(&[disposition("name=\"mod\\el\"")]), Form),
        (form(&[disposition("name=\"mod%65l\"")]), Form),
        (form(&[disposition("name*=utf-8''model")]), Form),
        (form(&[disposition("name=\"model")]), Form),
        (form(&[part("Content-Disposition: form-data;\r\n name=\"model\"", "a")]), Form),
        (form(&[part("Content-Disposition : form-data; name=\"model\"", "a")]), Form),
        (form(&[part("Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"model\"", "a")]), Form),
        (form(&[part("X: y\nContent-Disposition: form-data; name=\"model\"", "a")]), Form),
        (form(&[part("X: y", "a")]), Form),
        ("--b0\r\n\r\na\r\n--b0--".to_owned(), Form),
        (format!("before\r\n{}", form(&[field("model", "a")])), Form),
        (format!("{}{}", form(&[field("model", "a")]), form(&[field("model", "b")])), Form),
        (form(&[field("model", "a")]).replace("\r\n", "\n"), Form),
        (field("model", "a"), FormTruncated),
        (String::new(), FormTruncated),
        (form(&vec![field("a", "b"); MAX_PARTS + 1]), TooManyParts),
        (form(&[part(&"x".repeat(2 * MAX_HEADERS), "a")]), HeadersTooLong),
    ] {
        assert_eq!(RequestBody::read(Api::Form, Some(TYPE), &[form.as_bytes()]).unwrap_err().problem, expected, "{form}");
        for size in [1, 2, 3, 7] {
            let error = RequestBody::read(Api::Form, Some(TYPE), &chunks(form.as_bytes(), size)).unwrap_err();
            assert_eq!(error.problem, expected, "{form} in pieces of {size}");
        }
    }
    let invalid = b"--b0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\xff\r\n--b0--";
    assert_eq!(read(Api::Form, Some(TYPE), invalid).unwrap_err(), Problem::Form.at(55));
}

#[test]
fn a_boundary_must_be_one() {
    for content_type in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=\"a\\b\"",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=\"a\u{e9}\"",
        &format!("multipart/form-data; boundary={}", "x".repeat(MAX_BOUNDARY + 1)),
    ] {
        assert_eq!(RequestReader::new(Api::Form, Some(content_type)).unwrap_err(), Problem::Boundary.at(0), "{content_type}");
    }
    assert!(RequestReader::new(Api::Form, Some("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"")).is_ok());
}
