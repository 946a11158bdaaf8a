//! What is kept: the session directory (CONTRACT §1, §2, §4–§6).
