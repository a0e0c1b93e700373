//! Prompts: the system prompt with workspace instructions, tools and skills, and the rendering of messages and events.

mod message;
mod system;

pub(crate) use message::{can_request_skills, render_prompt};
pub(crate) use system::{SystemPromptBuilder, append_tools};
