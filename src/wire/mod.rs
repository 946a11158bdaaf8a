//! The wire: codecs without any I/O of their own.

pub mod inbox;
pub mod json;
pub mod message;
pub mod ndjson;
pub mod replay;
pub mod resp;
pub mod sse;
