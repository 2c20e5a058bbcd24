//! The macros for types that would otherwise be declared twice.

/// Declares an enum of WIT. Each case has its name in WIT, which is also its JSON form.
macro_rules! enumeration {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$case_meta:meta])* $case:ident = $wit:tt,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(
            feature = "host",
            derive(wasmtime::component::ComponentType, wasmtime::component::Lift, wasmtime::component::Lower),
            component(enum)
        )]
        #[repr(u8)]
        pub enum $name {
            $(
                $(#[$case_meta])*
                #[serde(rename = $wit)]
                #[cfg_attr(feature = "host", component(name = $wit))]
                $case,
            )+
        }

        impl $name {
            /// All cases, in the order of WIT.
            pub const ALL: &'static [Self] = &[$(Self::$case),+];

            /// Its name in WIT.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$case => $wit,)+
                }
            }

            /// wit-bindgen's code calls this for a case that crosses the component's boundary.
            #[doc(hidden)]
            pub const fn _lift(case: u8) -> Self {
                Self::ALL[case as usize]
            }
        }
    };
}

/// Declares a question in two forms: the owned one that a plugin receives, and the borrowed one that the host passes. The host can pass a
/// hundred runtimes to a plugin without a copy.
macro_rules! request {
    ($(#[$meta:meta])* [$($derive:ident),*] { $($(#[$field_meta:meta])* $field:ident: $owned:ty as $borrowed:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, $($derive),*)]
        // Only for the attributes of fields: this form is never lowered.
        #[cfg_attr(feature = "host", derive(wasmtime::component::ComponentType), component(record))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct Request {
            $($(#[$field_meta])* pub $field: $owned,)+
        }

        $(#[$meta])*
        #[doc = "\nAs the host asks: borrowed."]
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
        #[cfg_attr(feature = "host", derive(wasmtime::component::ComponentType, wasmtime::component::Lower), component(record))]
        #[serde(rename_all = "camelCase")]
        pub struct RequestRef<'a> {
            $($(#[$field_meta])* pub $field: $borrowed,)+
        }
    };
}
