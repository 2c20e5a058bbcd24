//! Reads the header of a safetensors file: the names, types and shapes of its tensors, one after another.

use crate::{
    files::{FilesError, ModelFiles},
    limits::{MAX_DIMENSIONS, MAX_HEADER_BYTES, MAX_TENSORS},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::fmt;

/// The maximum length of a tensor's name.
const MAX_NAME_BYTES: usize = 1_024;

/// The type of a tensor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dtype {
    Bool,
    U8,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    /// Eight bits.
    F8,
    /// The scale of a block: only an exponent.
    F8Scale,
    F6,
    F4,
    C64,
}

impl Dtype {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "BOOL" => Self::Bool,
            "U8" => Self::U8,
            "I8" => Self::I8,
            "I16" => Self::I16,
            "U16" => Self::U16,
            "I32" => Self::I32,
            "U32" => Self::U32,
            "I64" => Self::I64,
            "U64" => Self::U64,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "F32" => Self::F32,
            "F64" => Self::F64,
            "F8_E4M3" | "F8_E5M2" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => Self::F8,
            "F8_E8M0" => Self::F8Scale,
            "F6_E2M3" | "F6_E3M2" => Self::F6,
            "F4" => Self::F4,
            "C64" => Self::C64,
            _ => return None,
        })
    }

    /// The number of bits.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::F4 => 4,
            Self::F6 => 6,
            Self::Bool | Self::U8 | Self::I8 | Self::F8 | Self::F8Scale => 8,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 16,
            Self::I32 | Self::U32 | Self::F32 => 32,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 64,
        }
    }

    /// The name in PyTorch, for the types of weights.
    pub(crate) fn torch_name(self) -> Option<&'static str> {
        match self {
            Self::F16 => Some("float16"),
            Self::Bf16 => Some("bfloat16"),
            Self::F32 => Some("float32"),
            Self::F64 => Some("float64"),
            Self::F8 => Some("float8_e4m3fn"),
            _ => None,
        }
    }
}

/// A tensor of a header.
#[derive(Debug)]
pub(crate) struct Tensor<'a> {
    pub name: &'a str,
    pub dtype: Dtype,
    /// The number of its elements.
    pub elements: u64,
}

/// Why a file's header can't be used: the end of a sentence that begins with the file's name, or a read error.
#[derive(Debug)]
pub(crate) enum HeaderError {
    Broken(String),
    Files(FilesError),
}

fn broken(message: impl Into<String>) -> HeaderError {
    HeaderError::Broken(message.into())
}

/// Reads a file's header, and passes each tensor to `take`, which may stop with a message: the end of a sentence that begins with the
/// file's name.
pub(crate) fn read(
    files: &dyn ModelFiles,
    path: &str,
    size: u64,
    take: &mut dyn FnMut(&Tensor<'_>) -> Result<(), String>,
) -> Result<(), HeaderError> {
    let prefix = files.read_range(path, 0, 8).map_err(HeaderError::Files)?;
    let Ok(prefix) = <[u8; 8]>::try_from(prefix.as_slice()) else {
        return Err(broken("has fewer than 8 bytes, so it has no header: download it again"));
    };
    let length = u64::from_le_bytes(prefix);
    if prefix.starts_with(b"version ") {
        return Err(broken("is a pointer of Git LFS, not the file: run `git lfs pull`"));
    }
    let Some(data) = size.checked_sub(8).and_then(|rest| rest.checked_sub(length)) else {
        return Err(broken(format!("states a header of {length} bytes and has {size} bytes in all: download it again")));
    };
    let wanted = usize::try_from(length).ok().filter(|length| *length <= MAX_HEADER_BYTES);
    let Some(wanted) = wanted else {
        return Err(broken(format!("has a header of {length} bytes; at most {MAX_HEADER_BYTES} are read: split the file into shards")));
    };
    let header = files.read_range(path, 8, wanted).map_err(HeaderError::Files)?;
    if header.len() != wanted {
        return Err(broken("ends within its header: download it again"));
    }
    parse(&header, data, take).map_err(HeaderError::Broken)
}

/// Parses a header that is followed by `data` bytes.
pub(crate) fn parse(header: &[u8], data: u64, take: &mut dyn FnMut(&Tensor<'_>) -> Result<(), String>) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_slice(header);
    let (mut places, mut refused) = (Vec::new(), None);
    let seed = Header { data, places: &mut places, refused: &mut refused, take };
    let end = seed.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if let Some(message) = refused {
        return Err(message);
    }
    end.map_err(|error| format!("has a broken header: {error}: download it again"))?;
    // Tensors that share bytes would be counted twice.
    places.sort_unstable();
    if places.windows(2).any(|pair| matches!(pair, [(_, end), (begin, _)] if begin < end)) {
        return Err("has a broken header: tensors overlap: download it again".to_owned());
    }
    Ok(())
}

struct Header<'a> {
    data: u64,
    places: &'a mut Vec<(u64, u64)>,
    /// The message with which `take` stopped; the header may still be valid.
    refused: &'a mut Option<String>,
    take: &'a mut dyn FnMut(&Tensor<'_>) -> Result<(), String>,
}

impl<'de> DeserializeSeed<'de> for Header<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Header<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if name.len() > MAX_NAME_BYTES {
                return Err(A::Error::custom(format!("a tensor's name has more than {MAX_NAME_BYTES} bytes")));
            }
            let Entry { dtype, shape, data_offsets: (begin, end) } = map.next_value()?;
            let shown = || name.escape_debug();
            let Some(dtype) = Dtype::parse(&dtype.0) else {
                return Err(A::Error::custom(format!("the type of {} is unknown", shown())));
            };
            let Some(bits) = shape.0.and_then(|elements| elements.checked_mul(dtype.bits())) else {
                return Err(A::Error::custom(format!("the shape of {} is too large", shown())));
            };
            let elements = bits / dtype.bits();
            if begin > end || end > self.data {
                return Err(A::Error::custom(format!("{} lies outside of the file's {} bytes of data", shown(), self.data)));
            }
            if end - begin != bits.div_ceil(8) {
                return Err(A::Error::custom(format!("{} has {} bytes, and its shape needs {}", shown(), end - begin, bits.div_ceil(8))));
            }
            if self.places.len() == MAX_TENSORS {
                *self.refused = Some(format!("has more than {MAX_TENSORS} tensors, which aren't read"));
                return Err(A::Error::custom("refused"));
            }
            if begin < end {
                self.places.push((begin, end));
            }
            if let Err(message) = (self.take)(&Tensor { name: &name, dtype, elements }) {
                *self.refused = Some(message);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: Name,
    shape: Shape,
    data_offsets: (u64, u64),
}

#[derive(Deserialize)]
struct Name(String);

/// The product of the dimensions, if 64 bits hold it.
struct Shape(Option<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dimensions;
        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut product = Some(1_u64);
                let mut number = 0;
                while let Some(dimension) = list.next_element::<u64>()? {
                    number += 1;
                    if number > MAX_DIMENSIONS {
                        return Err(A::Error::custom(format!("a tensor has more than {MAX_DIMENSIONS} dimensions")));
                    }
                    // An empty tensor is empty regardless of its other dimensions, so 0 takes precedence over an overflow.
                    product = match (product, dimension) {
                        (_, 0) => Some(0),
                        (Some(product), dimension) => product.checked_mul(dimension),
                        (None, _) => None,
                    };
                }
                Ok(Shape(product))
            }
        }
        deserializer.deserialize_seq(Dimensions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(header: &str, data: u64) -> Result<Vec<(String, u64)>, String> {
        let mut found = Vec::new();
        parse(header.as_bytes(), data, &mut |tensor| {
            found.push((tensor.name.to_owned(), tensor.elements));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn tensors_have_the_product_of_their_dimensions() {
        let header = r#"{"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
            "b": {"dtype": "F4", "shape": [3], "data_offsets": [12, 14]}, "c": {"dtype": "F32", "shape": [], "data_offsets": [14, 18]},
            "d": {"dtype": "F32", "shape": [0, 9], "data_offsets": [18, 18]}}  "#;
        let expected = [("a", 6), ("b", 3), ("c", 1), ("d", 0)].map(|(name, elements)| (name.to_owned(), elements));
        assert_eq!(all(header, 18).unwrap(), expected);
    }

    #[test]
    fn headers_that_contradict_themselves_are_refused() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            all(&format!(r#"{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#), 64).unwrap_err()
        };
        assert!(one("F32", "[2]", "[0, 12]").contains("has 12 bytes, and its shape needs 8"));
        assert!(one("F32", "[2]", "[60, 68]").contains("outside of the file's 64 bytes"));
        assert!(one("F32", "[2]", "[8, 0]").contains("outside"));
        assert!(one("F99", "[2]", "[0, 8]").contains("unknown"));
        assert!(one("F32", "[4294967296, 4294967296]", "[0, 8]").contains("too large"));
        assert!(one("F32", "[-1]", "[0, 8]").contains("line 1"));
        assert!(one("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0, 4]").contains("16 dimensions"));
        let overlap =
            r#"{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]}}"#;
        assert!(all(overlap, 8).unwrap_err().contains("overlap"));
        assert!(all("{} {}", 0).is_err());
        assert!(all("[]", 0).is_err());
    }
}
