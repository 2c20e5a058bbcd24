//! The versions of the interfaces. docs/plugin-abi.md has the rules of their evolution.

/// The package of the interfaces.
pub const PACKAGE: &str = "pointsman:policy";

/// A version of the interfaces that a host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.1.0, which never changes.
    V0_1,
    /// The draft of 0.2.0, which may change with every release.
    Draft,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::V0_1, Self::Draft];

    /// The newest one that is published.
    pub const PUBLISHED: Self = Self::V0_1;

    /// Its number, as it stands behind the `@` in the name of an interface.
    pub const fn number(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1.0",
            Self::Draft => "0.2.0-draft",
        }
    }

    /// Whether it may still change.
    pub const fn is_draft(self) -> bool {
        matches!(self, Self::Draft)
    }

    /// The version of that number.
    pub fn parse(number: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The full name of one of its interfaces.
    pub fn interface(self, name: &str) -> String {
        format!("{PACKAGE}/{name}@{}", self.number())
    }
}
