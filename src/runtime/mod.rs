//! What waits: FIFOs, signals, the inbox, cancellation.

pub mod cancel;
pub mod environ;
pub mod fifo;
pub mod inbox;
pub mod notify;
pub mod signals;
pub mod sync;
