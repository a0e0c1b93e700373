//! What the agent is told: about itself, its workspace, its tools and its skills, and what somebody says to it.

mod message;
mod system;

pub(crate) use message::{HeaderMode, can_request_skills, received_at, render_message};
pub(crate) use system::{SystemPromptBuilder, append_tools};
