//! The model behind the agent.
