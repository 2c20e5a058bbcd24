//! The endpoint picker: answers proxies that ask where a request goes. Its data and decisions are `host/picker`'s.

pub mod grpc;
