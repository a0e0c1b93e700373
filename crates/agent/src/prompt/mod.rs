//! Prompts: the system prompt with workspace instructions, tools and skills, and the rendering of messages and events.

mod message;
mod system;

pub(crate) use message::{HeaderMode, can_request_skills, name_files, received_at, render_message};
pub(crate) use system::{SystemPromptBuilder, append_tools};
