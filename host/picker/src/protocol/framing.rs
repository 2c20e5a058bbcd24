//! gRPC's framing: before each message are a flag for compression and its length.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::VecDeque;

/// The length of the flag and the length field.
const PREFIX: usize = 5;

/// Why a stream can't be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// A message is compressed, although no compression was negotiated.
    Compressed,
    /// A message exceeds the limit.
    TooLong(u32),
    /// The stream ends inside a message.
    Truncated,
}

/// Parses messages from chunks. A message within one chunk isn't copied.
#[derive(Debug)]
pub struct Framing {
    max_message: usize,
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl Framing {
    /// Parses messages of at most `max_message` bytes.
    pub fn new(max_message: usize) -> Self {
        Self { max_message, chunks: VecDeque::new(), len: 0 }
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// The next message, if it is complete.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FramingError> {
        if self.len < PREFIX {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX];
        let mut bytes = self.chunks.iter().flatten();
        for into in &mut prefix {
            *into = bytes.next().copied().unwrap_or_default();
        }
        let [flag, length @ ..] = prefix;
        if flag != 0 {
            return Err(FramingError::Compressed);
        }
        let length = u32::from_be_bytes(length);
        let whole = usize::try_from(length).ok().filter(|whole| *whole <= self.max_message).ok_or(FramingError::TooLong(length))?;
        if self.len < PREFIX + whole {
            return Ok(None);
        }
        self.take(PREFIX);
        Ok(Some(self.take(whole)))
    }

    /// Checks that the stream doesn't end inside a message.
    pub fn finish(&self) -> Result<(), FramingError> {
        if self.len == 0 { Ok(()) } else { Err(FramingError::Truncated) }
    }

    /// The next bytes. There must be enough.
    fn take(&mut self, number: usize) -> Bytes {
        self.len -= number;
        let mut taken = BytesMut::new();
        let mut missing = number;
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.len() > missing {
                let part = chunk.split_to(missing);
                return joined(taken, part);
            }
            missing -= chunk.len();
            let part = self.chunks.pop_front().unwrap_or_default();
            if missing == 0 {
                return joined(taken, part);
            }
            taken.reserve(number);
            taken.put(part);
        }
        taken.freeze()
    }
}

fn joined(mut taken: BytesMut, part: Bytes) -> Bytes {
    if taken.is_empty() {
        return part;
    }
    taken.put(part);
    taken.freeze()
}

/// Encodes messages one after the other.
pub fn encode<'m, M: Message + 'm>(messages: impl IntoIterator<Item = &'m M>) -> Bytes {
    let mut bytes = BytesMut::new();
    for message in messages {
        let length = message.encoded_len();
        bytes.reserve(PREFIX + length);
        bytes.put_u8(0);
        // Messages of 4 GiB are refused before they get here.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        message.encode_raw(&mut bytes);
    }
    bytes.freeze()
}

/// Parses a message.
pub fn decode<M: Message + Default>(bytes: impl Buf) -> Result<M, prost::DecodeError> {
    M::decode(bytes)
}
