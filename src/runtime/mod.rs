//! What waits: FIFOs, signals, the inbox, cancellation.

pub mod cancel;
