//! What an agent may do (CONTRACT §12).
