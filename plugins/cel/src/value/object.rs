//! Maps. The maps of the crate `cel` are hash maps, whose order differs between runs. These are sorted by key and cheap to clone.

use super::Owned;
use super::number::{as_int, as_uint};
use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Items, Sizer, Zeroer};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

/// A key. Keys of `cel` can't be doubles, which Kubernetes allows in literals.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Int(CelInt),
    Uint(CelUInt),
    Double(CelDouble),
    Bool(CelBool),
    Text(CelString<'static>),
}

/// A map, sorted by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Arc<[(Key, Owned)]>);

/// A key for comparisons.
#[derive(Clone, Copy)]
enum Sought<'a> {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(&'a str),
}

impl Key {
    /// A text key.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Key::Text(CelString::from(text.into()))
    }

    /// The key as a value.
    pub(crate) fn inner(&self) -> &(dyn Val + 'static) {
        match self {
            Key::Int(int) => int,
            Key::Uint(uint) => uint,
            Key::Double(double) => double,
            Key::Bool(bool) => bool,
            Key::Text(text) => text,
        }
    }

    fn sought(&self) -> Sought<'_> {
        match self {
            Key::Int(int) => Sought::Int(*int.inner()),
            Key::Uint(uint) => Sought::Uint(*uint.inner()),
            Key::Double(double) => Sought::Double(*double.inner()),
            Key::Bool(bool) => Sought::Bool(*bool.inner()),
            Key::Text(text) => Sought::Text(text.inner()),
        }
    }
}

impl Sought<'_> {
    fn rank(&self) -> u8 {
        match self {
            Sought::Int(_) => 0,
            Sought::Uint(_) => 1,
            Sought::Double(_) => 2,
            Sought::Bool(_) => 3,
            Sought::Text(_) => 4,
        }
    }

    fn compared(&self, other: &Sought<'_>) -> Ordering {
        match (self, other) {
            (Sought::Text(one), Sought::Text(other)) => one.cmp(other),
            (Sought::Int(one), Sought::Int(other)) => one.cmp(other),
            (Sought::Uint(one), Sought::Uint(other)) => one.cmp(other),
            (Sought::Double(one), Sought::Double(other)) => one.total_cmp(other),
            (Sought::Bool(one), Sought::Bool(other)) => one.cmp(other),
            (one, other) => one.rank().cmp(&other.rank()),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sought().compared(&other.sought())
    }
}

impl Object {
    /// A map with entries in any order. If a key occurs twice, the later entry is used.
    pub(crate) fn new(mut entries: Vec<(Key, Owned)>) -> Self {
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            entries.reverse();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        Object(entries.into())
    }

    /// The entries, sorted by key.
    pub(crate) fn entries(&self) -> &[(Key, Owned)] {
        &self.0
    }

    /// The value of a key. Equal numbers of different types are the same key.
    pub(crate) fn value(&self, key: &dyn Val) -> Result<Option<&(dyn Val + 'static)>, ExecutionError> {
        if let Some(text) = key.downcast_ref::<CelString<'_>>() {
            return Ok(self.exactly(&Sought::Text(text.inner())));
        }
        if let Some(bool) = key.downcast_ref::<CelBool>() {
            return Ok(self.exactly(&Sought::Bool(*bool.inner())));
        }
        let (int, uint) = if let Some(int) = key.downcast_ref::<CelInt>() {
            (Some(*int.inner()), u64::try_from(*int.inner()).ok())
        } else if let Some(uint) = key.downcast_ref::<CelUInt>() {
            (i64::try_from(*uint.inner()).ok(), Some(*uint.inner()))
        } else if let Some(double) = key.downcast_ref::<CelDouble>() {
            if let Some(found) = self.exactly(&Sought::Double(*double.inner())) {
                return Ok(Some(found));
            }
            (as_int(*double.inner()), as_uint(*double.inner()))
        } else {
            return Err(crate::error::no_overload());
        };
        Ok(int.and_then(|int| self.exactly(&Sought::Int(int))).or_else(|| uint.and_then(|uint| self.exactly(&Sought::Uint(uint)))))
    }

    fn exactly(&self, sought: &Sought<'_>) -> Option<&(dyn Val + 'static)> {
        let at = self.0.binary_search_by(|(key, _)| key.sought().compared(sought)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }
}

/// A value as a key, if its type is allowed for keys.
pub(crate) fn key_of(value: &dyn Val) -> Option<Key> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        Some(Key::text(text.inner()))
    } else if let Some(int) = value.downcast_ref::<CelInt>() {
        Some(Key::Int(*int))
    } else if let Some(uint) = value.downcast_ref::<CelUInt>() {
        Some(Key::Uint(*uint))
    } else {
        let double = value.downcast_ref::<CelDouble>().map(|double| Key::Double(*double));
        double.or_else(|| value.downcast_ref::<CelBool>().map(|bool| Key::Bool(*bool)))
    }
}

impl Val for Object {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn into_indexer<'v>(self: Box<Self>) -> Option<Box<dyn Indexer + 'v>>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Object>().is_some_and(|other| {
            self.0.len() == other.0.len()
                && self.0.iter().all(|(key, value)| matches!(other.value(key.inner()), Ok(Some(theirs)) if value.equals(theirs)))
        })
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Object {}

impl Container for Object {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        self.value(key).map(|found| found.is_some())
    }
}

impl Indexer for Object {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match self.value(key)? {
            Some(value) => Ok(CowVal::Borrowed(value)),
            None => Err(ExecutionError::no_such_key(&crate::error::key_text(key))),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for Object {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Items<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Keys(self.0.iter()))
    }
}

struct Keys<'b>(std::slice::Iter<'b, (Key, Owned)>);

impl<'b, 'v> Items<'b, 'v> for Keys<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|(key, _)| key.inner())
    }
}

impl Sizer for Object {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.0.len()).unwrap_or(i64::MAX))
    }
}

impl Zeroer for Object {
    fn is_zero_value(&self) -> bool {
        self.0.is_empty()
    }
}
