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
//! | [`rules`] | a runner without a model: rules, and state that the host keeps | `provide_runners` |
//! | [`notebook`] | a runner that keeps its own context, and a pointer to it in the host | `provide_runners` |
//!
//! `custom_distribution.rs` is a binary of one's own with one of them, `runners.rs` one with both runners; `tests/examples.rs` runs each through a whole turn,
//! `tests/runners.rs` the runners under bindings.

pub mod model_stage;
pub mod notebook;
pub mod redactor;
pub mod rendering;
pub mod rules;
pub mod tape_store;
pub mod tool;
pub mod view;
