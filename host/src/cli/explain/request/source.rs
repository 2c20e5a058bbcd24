//! The source of a record: a running picker, or a file.

use super::{super::remote, RequestArgs};
use crate::endpoint_picker::decisions::{
    record::Record,
    route::{MAX_ANSWER_BYTES, PATH},
};
use anyhow::{Context, Result, anyhow, bail};
use http::StatusCode;

/// The record of the request, or the newest one.
pub(super) async fn read(args: &RequestArgs) -> Result<Record> {
    let wanted = args.request.as_deref();
    let (source, text) = match (&args.picker, &args.file) {
        (Some(picker), _) => (format!("the picker at {picker}"), ask(picker, wanted).await?),
        (None, Some(file)) => (file.display().to_string(), remote::read_file(file)?),
        (None, None) => bail!("nothing to explain: specify --picker ADDRESS:PORT or -f FILE"),
    };
    find(&text, wanted).with_context(|| source.clone())?.ok_or_else(|| match wanted {
        Some(request) => anyhow!("{source} has no decision about the request {request:?}: only the last ones are recorded"),
        None => anyhow!("{source} has no decisions"),
    })
}

async fn ask(picker: &str, wanted: Option<&str>) -> Result<String> {
    let client = remote::client("--picker", picker)?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", "1");
    if let Some(request) = wanted {
        query.append_pair("request", request);
    }
    let target = format!("{PATH}?{}", query.finish());
    let answer = remote::ask(&client, &target, MAX_ANSWER_BYTES, &format!("the picker at {picker}")).await?;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    if answer.status() == StatusCode::OK {
        return Ok(text);
    }
    let line: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    bail!("the picker at {picker} answers {PATH} with status {}: {line}", answer.status().as_u16())
}

/// The first record of the request in a text. It parses line by line, because a file may be cut at its end.
fn find(text: &str, wanted: Option<&str>) -> Result<Option<Record>> {
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record: Record = serde_json::from_str(line).with_context(|| format!("line {}: it is not a decision of a picker", at + 1))?;
        if wanted.is_none_or(|wanted| record.request == wanted) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_of_a_request_counts_and_an_id_may_be_left_out() {
        let text =
            "{\"number\": 2, \"request\": \"b\"}\n\n{\"number\": 1, \"request\": \"a\"}\n{\"number\": 0, \"request\": \"a\"}\n{\"num";
        let number = |wanted| find(text, wanted).unwrap().map(|record| record.number);
        assert_eq!((number(None), number(Some("a")), number(Some("b"))), (Some(2), Some(1), Some(2)));
        assert!(find(text, Some("c")).unwrap_err().to_string().starts_with("line 5: "));
        assert!(find("", None).unwrap().is_none());
    }
}
