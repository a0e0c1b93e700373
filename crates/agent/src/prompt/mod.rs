//! What the agent is told: about itself, its workspace, its tools and its skills, and what somebody says to it.

mod message;
mod system;

pub(crate) use message::{Told, came_at, may_name_skills, message};
pub(crate) use system::{System, with_tools};
