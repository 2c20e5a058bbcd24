//! Istio's proxies call a service by the name of its cluster, `outbound|9002||picker.models.svc.cluster.local`. A bar isn't allowed in the
//! authority of a URI, so the HTTP/2 server would reset each of their streams. This stream replaces each bar in an `:authority` with a plus
//! sign, before the server reads it. Both have the same length in HPACK, even in its Huffman code, so nothing moves, and the header tables
//! of both sides stay equal.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of a client's connection preface.
const PREFACE: usize = 24;

/// The length of a frame's head.
const HEAD: usize = 9;

/// The type of frames with headers, and its flags.
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The maximum size of a frame. The server itself refuses larger ones.
const MAX_FRAME: usize = 16_384;

/// The number of bytes per read.
const CHUNK: usize = 16 << 10;

/// The index of `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;

/// HPACK's Huffman codes by length: the first code, and the number of codes. Host names contain no longer ones.
const CODES: [(u32, u32, u32); 10] = [
    (5, 0x0, 10),
    (6, 0x14, 26),
    (7, 0x5c, 32),
    (8, 0xf8, 6),
    (10, 0x3f8, 5),
    (11, 0x7fa, 3),
    (12, 0xffa, 2),
    (13, 0x1ff8, 6),
    (14, 0x3ffc, 2),
    (15, 0x7ffc, 3),
];

/// The code of `|`, and its length in bits. `+` differs only in the last three bits.
const BAR: (u32, u32) = (0x7fc, 11);

/// A proxy's connection, with authorities that the server accepts.
pub(super) struct ReadableAuthority<S> {
    stream: S,
    /// The received bytes that the server hasn't read.
    buffer: Vec<u8>,
    /// The number of these bytes that were read, and the number that may be. The rest is a part of a frame's head, or of a frame with
    /// headers.
    taken: usize,
    readable: usize,
    /// The number of following bytes that needn't be checked.
    pass: usize,
}

impl<S> ReadableAuthority<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), taken: 0, readable: 0, pass: PREFACE }
    }

    /// Checks the received bytes, and releases complete frames.
    fn look(&mut self) {
        loop {
            let passed = self.pass.min(self.buffer.len() - self.readable);
            (self.readable, self.pass) = (self.readable + passed, self.pass - passed);
            let rest = &mut self.buffer[self.readable..];
            let Some(head) = rest.first_chunk::<HEAD>().filter(|_| self.pass == 0) else { return };
            let [long, middle, short, type_, flags, ..] = *head;
            let length = u32::from_be_bytes([0, long, middle, short]) as usize;
            // Headers that continue in another frame are longer than any proxy's.
            if type_ == HEADERS && flags & END_HEADERS != 0 && length <= MAX_FRAME {
                let Some(payload) = rest.get_mut(HEAD..HEAD + length) else { return };
                mend_frame(payload, flags);
            }
            self.pass = HEAD + length;
        }
    }
}

/// Fixes the payload of a frame with headers. Invalid ones stay unchanged, and the server refuses them.
fn mend_frame(payload: &mut [u8], flags: u8) {
    let mut block = payload;
    if flags & PADDED != 0 {
        let Some((padding, rest)) = block.split_first_mut() else { return };
        let Some(length) = rest.len().checked_sub(usize::from(*padding)) else { return };
        block = &mut rest[..length];
    }
    if flags & PRIORITY != 0 {
        let Some((_, rest)) = block.split_at_mut_checked(5) else { return };
        block = rest;
    }
    _ = mend_block(block);
}

/// Fixes a block of headers; none if it ends too early.
fn mend_block(block: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        let prefix = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let index = integer(block, &mut at, prefix)?;
        // An indexed header, or a table size update.
        if first >= 0x80 || prefix == 5 {
            continue;
        }
        if index == 0 {
            string(block, &mut at)?;
        }
        let (value, is_huffman) = string(block, &mut at)?;
        if index == AUTHORITY {
            let value = block.get_mut(value)?;
            if is_huffman {
                mend_huffman(value);
            } else {
                value.iter_mut().filter(|byte| **byte == b'|').for_each(|byte| *byte = b'+');
            }
        }
    }
    Some(())
}

/// An integer whose first bits share a byte with other data.
fn integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mut next = || {
        let byte = block.get(*at).copied();
        *at += 1;
        byte
    };
    let most = (1 << prefix) - 1;
    let mut number = usize::from(next()?) & most;
    if number < most {
        return Some(number);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        number += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// The position of a string, and whether it is Huffman-coded.
fn string(block: &[u8], at: &mut usize) -> Option<(std::ops::Range<usize>, bool)> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    let range = *at..at.checked_add(length)?;
    *at = range.end;
    Some((range, is_huffman))
}

/// Replaces the bars of a Huffman-coded string. It stops at an unknown code, such as the padding.
fn mend_huffman(value: &mut [u8]) {
    let bits = |value: &[u8], at: usize, count: u32| -> Option<u32> {
        let bit = |at: usize| value.get(at / 8).map(|byte| u32::from(byte >> (7 - at % 8)) & 1);
        (at..at + count as usize).try_fold(0, |code, at| Some((code << 1) | bit(at)?))
    };
    let mut at = 0;
    loop {
        let known = CODES.iter().find_map(|(count, first, many)| {
            let code = bits(value, at, *count)?;
            (code.wrapping_sub(*first) < *many).then_some((code, *count))
        });
        let Some((code, count)) = known else { return };
        if (code, count) == BAR {
            for place in at + count as usize - 3..at + count as usize {
                value[place / 8] ^= 0x80 >> (place % 8);
            }
        }
        at += count as usize;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadableAuthority<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.taken == this.readable {
            this.buffer.drain(..this.taken);
            (this.taken, this.readable) = (0, 0);
            let known = this.buffer.len();
            this.buffer.resize(known + CHUNK, 0);
            let mut chunk = ReadBuf::new(&mut this.buffer[known..]);
            let read = Pin::new(&mut this.stream).poll_read(context, &mut chunk);
            let count = chunk.filled().len();
            this.buffer.truncate(known + count);
            ready!(read)?;
            if count == 0 {
                // Incomplete frames will not be completed.
                this.readable = known;
                break;
            }
            this.look();
        }
        let count = buffer.remaining().min(this.readable - this.taken);
        buffer.put_slice(&this.buffer[this.taken..this.taken + count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadableAuthority<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// A frame with headers: indexed ones, an authority, and a header with a literal name.
    fn frame(authority: &[u8], is_huffman: bool, flags: u8) -> Vec<u8> {
        let length = |bytes: &[u8], flag: u8| flag | u8::try_from(bytes.len()).unwrap();
        let mut block = vec![0x83, 0x86, 0x41, length(authority, if is_huffman { 0x80 } else { 0 })];
        block.extend(authority);
        block.extend([0x40, 3, b'a', b'|', b'b', 3, b'1', b'|', b'2']);
        let mut payload = Vec::new();
        if flags & PADDED != 0 {
            payload.push(2);
        }
        if flags & PRIORITY != 0 {
            payload.extend([0; 5]);
        }
        payload.extend(&block);
        if flags & PADDED != 0 {
            payload.extend([0; 2]);
        }
        let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), HEADERS, flags, 0, 0, 0, 1];
        frame.extend(payload);
        frame
    }

    /// A Huffman-coded string, for the letters of these tests.
    fn huffman(text: &str) -> Vec<u8> {
        let code = |letter: char| match letter {
            '0' => (0x0, 5),
            '2' => (0x2, 5),
            'a' => (0x3, 5),
            'o' => (0x7, 5),
            '.' => (0x17, 6),
            '9' => (0x1f, 6),
            'u' => (0x2d, 6),
            'v' => (0x77, 7),
            'X' => (0xfc, 8),
            '|' => BAR,
            '+' => (0x7fb, 11),
            other => panic!("{other} has no code here"),
        };
        let mut bits: Vec<bool> = Vec::new();
        for letter in text.chars() {
            let (code, count) = code(letter);
            bits.extend((0..count).rev().map(|place| (code >> place) & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| (byte << 1) | u8::from(*bit))).collect()
    }

    async fn through(bytes: Vec<u8>, at_once: usize) -> Vec<u8> {
        let (stream, mut other) = tokio::io::duplex(at_once);
        let writing = tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut other, &bytes).await.unwrap() });
        let mut read = Vec::new();
        ReadableAuthority::new(stream).read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        read
    }

    #[tokio::test]
    async fn bars_of_authorities_become_plus_signs_however_the_bytes_come_and_nothing_else_changes() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let data = [0, 0, 3, 0, 1, 0, 0, 0, 1, b'a', b'|', b'b'];
        for flags in [END_HEADERS, END_HEADERS | PADDED, END_HEADERS | PRIORITY, END_HEADERS | PADDED | PRIORITY] {
            let (bars, pluses) = ("ou|9002||va.va.Xo|", "ou+9002++va.va.Xo+");
            let all = |authority: &str| {
                let plain = frame(authority.as_bytes(), false, flags);
                [preface.clone(), plain, data.to_vec(), frame(&huffman(authority), true, flags), data.to_vec()].concat()
            };
            for at_once in [1, 7, 64, 4096] {
                assert_eq!(through(all(bars), at_once).await, all(pluses), "{flags:#x}, {at_once} bytes at once");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_block_of_headers_stays_as_it_is() {
        let preface = vec![b' '; PREFACE];
        for payload in [&[0x41][..], &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x41, 5, b'|'], &[0xff; 9], &[0x00]] {
            for flags in [END_HEADERS, END_HEADERS | PADDED, END_HEADERS | PRIORITY, 0] {
                let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), HEADERS, flags, 0, 0, 0, 1];
                frame.extend(payload);
                let all = [preface.clone(), frame].concat();
                assert_eq!(through(all.clone(), 64).await, all, "{payload:?} {flags:#x}");
            }
        }
    }
}
