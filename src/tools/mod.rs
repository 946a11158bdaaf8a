//! The tools a model can call (CONTRACT §11).
