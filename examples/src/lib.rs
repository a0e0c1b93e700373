//! Example plugins: each module is one small plugin that replaces or adds one part of a turn and leaves the rest
//! unchanged.
//!
//! | module | plugin | hook |
//! |---|---|---|
//! | [`model_stage`] | replies in place of the agent | `run_model` |
//! | [`rendering`] | renders the outgoing messages | `render_outbound` |
//! | [`tape_store`] | stores tape entries elsewhere | `provide_tape_store` |
//! | [`view`] | selects the tape entries that a model sees | `build_tape_context` |
//! | [`tool`] | adds a tool | `provide_tools` |
//! | [`redactor`] | masks keys in model requests and tool results, fail-closed | `before_llm_call`, `after_tool_call` |
//! | [`weather`] | has settings of its own, proposes some when a user sets the host up, and adds a command | `system_prompt`, `onboard_config`, `register_cli_commands` |
//! | [`rules`] | runner without a model: rules, and state stored by the host | `provide_runners` |
//! | [`notebook`] | runner that manages its own context and keeps a pointer to it in the stored state | `provide_runners` |
//!
//! `custom_distribution.rs` (binary `shout`) adds the plugins of [`model_stage`] and [`weather`], `runners.rs` both runners;
//! `tests/examples.rs` runs each plugin through a complete turn, `tests/runners.rs` the runners under bindings.

pub mod model_stage;
pub mod notebook;
pub mod redactor;
pub mod rendering;
pub mod rules;
pub mod tape_store;
pub mod tool;
pub mod view;
pub mod weather;
