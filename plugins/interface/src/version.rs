//! The versions of the interfaces. docs/plugin-abi.md has the rules for changes.

/// The package of the interfaces.
pub const PACKAGE: &str = "pointsman:policy";

/// A version of the interfaces that a host supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.1.0, which never changes.
    V0_1,
    /// The draft of 0.2.0, which may change with every release.
    Draft,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 2] = [Self::V0_1, Self::Draft];

    /// The newest published version.
    pub const PUBLISHED: Self = Self::V0_1;

    /// The version number, as in the name of an interface after the `@`.
    pub const fn number(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1.0",
            Self::Draft => "0.2.0-draft",
        }
    }

    /// Whether the version may still change.
    pub const fn is_draft(self) -> bool {
        matches!(self, Self::Draft)
    }

    /// The version with this number.
    pub fn parse(number: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The full name of an interface in this version.
    pub fn interface(self, name: &str) -> String {
        format!("{PACKAGE}/{name}@{}", self.number())
    }
}
