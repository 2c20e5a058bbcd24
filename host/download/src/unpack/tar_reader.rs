//! Reads a tar archive entry by entry, in bounded memory.
//!
//! Not `tar::Archive`: it reads a long name into memory whatever its length, and an archive may say that it has gigabytes. `tar::Header`
//! reads the fields.

use crate::path::MAX_PATH_BYTES;
use std::io::{self, Read};
use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// The longest record of extended headers: a path, a link's target and some attributes.
const MAX_EXTENDED_BYTES: u64 = 64 << 10;

/// An entry; its bytes follow in the reader.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) size: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    SymbolicLink(String),
    /// Another name for an entry, by its path in the archive.
    HardLink(String),
    /// A device, a pipe, or what this doesn't know.
    Other,
}

pub(super) struct TarReader<R> {
    reader: R,
    /// Bytes of the current entry and its padding.
    left: u64,
    padding: u64,
}

/// What extended headers say of the next entry.
#[derive(Default)]
struct Extended {
    path: Option<String>,
    target: Option<String>,
    size: Option<u64>,
}

impl<R: Read> TarReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, left: 0, padding: 0 }
    }

    /// The next entry; the bytes of the one before are passed over.
    pub(super) fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut extended = Extended::default();
        loop {
            let rest = self.left + self.padding;
            self.pass_over(rest)?;
            let Some(header) = self.header()? else { return Ok(None) };
            let is_extended = matches!(header.entry_type(), EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink);
            let size = if is_extended { header.entry_size()? } else { extended.size.map_or_else(|| header.entry_size(), Ok)? };
            self.begin(size);
            match header.entry_type() {
                EntryType::XGlobalHeader => {}
                EntryType::XHeader => extended.read_pax(&self.extended_header(size)?),
                EntryType::GNULongName => extended.path = Some(text(&self.extended_header(size)?)?),
                EntryType::GNULongLink => extended.target = Some(text(&self.extended_header(size)?)?),
                kind => {
                    let path = extended.path.take().map_or_else(|| text(&header.path_bytes()), Ok)?;
                    let mut target = || extended.target.take().map_or_else(|| text(&header.link_name_bytes().unwrap_or_default()), Ok);
                    let kind = match kind {
                        // Old archives have a folder as a file whose name ends with a slash.
                        EntryType::Regular | EntryType::Continuous if path.ends_with('/') => Kind::Folder,
                        EntryType::Regular | EntryType::Continuous => Kind::File,
                        EntryType::Directory => Kind::Folder,
                        EntryType::Symlink => Kind::SymbolicLink(target()?),
                        EntryType::Link => Kind::HardLink(target()?),
                        _ => Kind::Other,
                    };
                    return Ok(Some(Entry { path, kind, size }));
                }
            }
        }
    }

    /// The bytes of the current entry.
    pub(super) fn content(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if length == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut buffer[..length])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The sum is over the header with spaces in the sum's own place.
        let sum: u32 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
        if header.cksum()? != sum {
            return Err(invalid("a header's checksum differs"));
        }
        Ok(Some(header))
    }

    fn extended_header(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENDED_BYTES {
            return Err(invalid("an extended header has more than 64 KiB"));
        }
        let mut bytes = Vec::new();
        (&mut self.reader).take(size).read_to_end(&mut bytes)?;
        self.left -= bytes.len() as u64;
        if self.left > 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    fn pass_over(&mut self, bytes: u64) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.reader).take(bytes), &mut io::sink())?;
        (self.left, self.padding) = (0, 0);
        if passed == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Extended {
    /// Reads lines of the form `LENGTH KEY=VALUE`.
    fn read_pax(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let Some((key, value)) = line.split_once(' ').and_then(|(_, pair)| pair.split_once('=')) else { continue };
            match key {
                "path" => self.path = Some(value.to_owned()),
                "linkpath" => self.target = Some(value.to_owned()),
                "size" => self.size = value.parse().ok(),
                _ => {}
            }
        }
    }
}

fn text(bytes: &[u8]) -> io::Result<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.len() > MAX_PATH_BYTES * 4 {
        return Err(invalid("a path has more than 4096 bytes"));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| invalid("a path isn't UTF-8"))
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
