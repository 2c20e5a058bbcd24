//! Components are stored plain or compressed with gzip, which their first bytes show.

use super::SourceError;
use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use pointsman_sandbox::limits::LARGEST_BINARY;
use std::{
    borrow::Cow,
    io::{self, Read, Write},
};

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The component in `bytes`, decompressed if necessary. Never larger than [`LARGEST_BINARY`].
pub fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, SourceError> {
    if bytes.len() > LARGEST_BINARY {
        return Err(SourceError::TooLarge(""));
    }
    if !bytes.starts_with(&MAGIC) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut decoder = GzDecoder::new(bytes);
    let mut unpacked = Vec::new();
    // One more byte distinguishes a component of exactly the maximum size from a bomb, of which no more is ever in memory.
    let most = u64::try_from(LARGEST_BINARY).unwrap_or(u64::MAX);
    (&mut decoder).take(most + 1).read_to_end(&mut unpacked).map_err(|error| SourceError::Gzip(words(&error)))?;
    if unpacked.len() > LARGEST_BINARY {
        return Err(SourceError::TooLarge(" when decompressed"));
    }
    let rest = decoder.into_inner().len();
    if rest > 0 {
        return Err(SourceError::Gzip(format!("{rest} bytes follow after its end")));
    }
    Ok(Cow::Owned(unpacked))
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "its end is missing".to_owned(),
        _ => error.to_string(),
    }
}

/// `bytes` compressed with gzip. Equal bytes become equal bytes: the header has no time.
pub(super) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> SourceError {
        unpack(bytes).unwrap_err()
    }

    #[test]
    fn what_is_compressed_is_decompressed_and_the_rest_passes_as_it_is() {
        assert_eq!(unpack(b"\0asm and more").unwrap(), Cow::Borrowed(b"\0asm and more"));
        assert_eq!(unpack(b"").unwrap(), Cow::Borrowed(b""));
        assert_eq!(*unpack(&pack(b"\0asm and more").unwrap()).unwrap(), *b"\0asm and more");
        // Only one layer: the result isn't decompressed again.
        let twice = pack(&pack(b"x").unwrap()).unwrap();
        assert_eq!(*unpack(&twice).unwrap(), *pack(b"x").unwrap());
    }

    #[test]
    fn equal_bytes_are_packed_equally_and_carry_no_time() {
        let packed = pack(b"abc").unwrap();
        assert_eq!(packed, pack(b"abc").unwrap());
        assert_eq!(packed[4..8], [0; 4]);
    }

    #[test]
    fn the_largest_component_is_accepted_and_one_byte_more_is_a_bomb() {
        let zeros = vec![0; LARGEST_BINARY + 1];
        assert_eq!(unpack(&pack(&zeros[1..]).unwrap()).unwrap().len(), LARGEST_BINARY);
        assert_eq!(refused(&pack(&zeros).unwrap()), SourceError::TooLarge(" when decompressed"));
        assert_eq!(refused(&zeros), SourceError::TooLarge(""));
        assert_eq!(refused(&zeros).to_string(), "it has more than the limit of 67108864 bytes");
    }

    #[test]
    fn a_truncated_changed_or_prolonged_stream_is_refused() {
        let packed = pack(b"abcabcabcabc").unwrap();
        for end in 2..packed.len() {
            assert!(matches!(refused(&packed[..end]), SourceError::Gzip(_)), "{end}");
        }
        let truncated = refused(&packed[..packed.len() - 1]).to_string();
        assert_eq!(
            truncated,
            "it starts like gzip but can't be decompressed: its end is missing; store it again, uncompressed or compressed with gzip"
        );
        let mut changed = packed.clone();
        let checksum = changed.len() - 6;
        changed[checksum] ^= 1;
        assert!(matches!(refused(&changed), SourceError::Gzip(_)));
        let prolonged = [packed.as_slice(), b"garbage"].concat();
        assert_eq!(refused(&prolonged), SourceError::Gzip("7 bytes follow after its end".to_owned()));
    }
}
