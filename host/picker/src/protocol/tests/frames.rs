//! Tests of gRPC's framing with arbitrary chunks.

use super::*;

/// The messages in a stream that arrives in chunks of these sizes, repeated.
fn read(stream: &[u8], sizes: &[usize], max_message: usize) -> Result<Vec<Bytes>, framing::FramingError> {
    let mut framing = framing::Framing::new(max_message);
    let (mut rest, mut messages) = (stream, Vec::new());
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at((*size).min(rest.len()));
        framing.push(Bytes::copy_from_slice(chunk));
        rest = after;
        while let Some(message) = framing.next_message()? {
            messages.push(message);
        }
    }
    framing.finish().map(|()| messages)
}

#[test]
fn what_is_sent_is_read_and_what_is_wrong_is_refused() {
    use framing::FramingError::{Compressed, TooLong, Truncated};
    let sent = [request_headers(true), message(From::RequestBody(chunk(&[7; 300], true)))];
    let stream = framing::encode(&sent);
    let messages = read(&stream, &[stream.len()], 1_000).unwrap();
    let messages: Vec<ProcessingRequest> = messages.into_iter().map(|message| framing::decode(message).unwrap()).collect();
    assert_eq!(messages, sent);
    assert_eq!(read(&stream[..stream.len() - 1], &[50], 1_000), Err(Truncated));
    assert_eq!(read(&[1, 0, 0, 0, 0], &[1], 10), Err(Compressed));
    assert_eq!(read(&[0, 0, 0, 1, 0], &[5], 255), Err(TooLong(256)));
    assert_eq!(read(&[0, 0xff, 0xff, 0xff, 0xff], &[5], 255), Err(TooLong(u32::MAX)), "before any of it is held");
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn messages_are_the_same_in_any_chunks(messages in vec(vec(any::<u8>(), 0..50), 0..10), sizes in vec(1..40_usize, 1..5)) {
        let stream: Vec<u8> = messages
            .iter()
            .flat_map(|message| [vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()], message.clone()].concat())
            .collect();
        let found: Vec<Vec<u8>> = read(&stream, &sizes, 50).unwrap().into_iter().map(Vec::from).collect();
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn arbitrary_streams_end_in_messages_or_an_error(stream in vec(any::<u8>(), 0..200), sizes in vec(1..40_usize, 1..5)) {
        drop(read(&stream, &sizes, 64));
    }
}
