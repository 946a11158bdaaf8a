//! The wire: codecs without any I/O of their own.

pub mod message;
