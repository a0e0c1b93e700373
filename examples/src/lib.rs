//! Examples: each module is one small plugin that replaces or adds one thing, and the rest of a turn does not notice.
//!
//! | module | the plugin | hook |
//! |---|---|---|
//! | [`model_stage`] | answers instead of the agent | `run_model` |
//! | [`rendering`] | writes the messages that are sent | `render_outbound` |
//! | [`tape_store`] | keeps the entries of tapes elsewhere | `provide_tape_store` |
//! | [`view`] | chooses what a model reads of a tape | `build_tape_context` |
//! | [`tool`] | adds a tool | `provide_tools` |
//! | [`redactor`] | keeps keys from models and tapes, or fails | `before_llm_call`, `after_tool_call` |
//!
//! `custom_distribution.rs` is a binary of one's own with one of them; `tests/examples.rs` runs each through a whole turn.

pub mod model_stage;
pub mod redactor;
pub mod rendering;
pub mod tape_store;
pub mod tool;
pub mod view;
