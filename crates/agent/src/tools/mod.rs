//! Built-in tools of the agent.

mod artifact;
mod bash;
mod fs;
mod help;
pub(crate) mod image;
mod knowledge;
mod model;
mod quit;
mod skill;
mod subagent;
mod tape;
mod typed_tool;
pub mod web;
mod work_slots;

pub(crate) use self::skill::SKILL_TOOL;
use std::sync::Arc;

use capstan_hooks::contracts::Tool;
use capstan_protocol::{
    AllowList, ArtifactOperation, KnowledgeOperation, ModelOperation, OperationSet, PermissionSet, ResourceAccess,
    ResourceOperation, TapeAccess, ToolOperation,
};

pub(crate) use work_slots::WorkSlots;

use crate::paths::PathBounds;
use crate::skills::SkillDirs;

/// User settings for the tools.
#[derive(Debug, Clone, Default)]
pub struct ToolOptions {
    /// Paths the file tools may use.
    pub files: PathBounds,
    /// Additional environment variables passed to commands; secrets are never passed.
    pub environment: Vec<String>,
    /// Soft limit of open files of commands, if it differs from that of the host.
    pub command_file_limit: Option<u64>,
    /// Settings of `web.fetch`.
    pub web: web::WebOptions,
}

/// Creates all built-in tools.
pub(crate) fn built_in_tools(options: &ToolOptions, skills: &SkillDirs) -> Vec<Arc<dyn Tool>> {
    let files = || options.files.clone();
    let (changes, tape_reads) = (fs::change_slots(), tape::read_slots());
    let jobs = bash::JobRegistry::new(options.environment.clone()).with_file_limit(options.command_file_limit);
    let jobs = Arc::new(jobs);
    let tape = |tape| PermissionSet { tape, ..PermissionSet::none() };
    let artifacts = PermissionSet { artifacts: [ArtifactOperation::Read].into(), ..PermissionSet::none() };
    let knowledge_bases = all_names([KnowledgeOperation::List, KnowledgeOperation::Retrieve].into());
    let knowledge = PermissionSet { knowledge_bases, ..PermissionSet::none() };
    let models = PermissionSet { models: all_names([ModelOperation::Stream].into()), ..PermissionSet::none() };
    let tools = PermissionSet { tools: all_names([ToolOperation::Detail].into()), ..PermissionSet::none() };
    let children = PermissionSet { children: true, ..PermissionSet::none() };
    vec![
        Arc::new(bash::run(&jobs).with_own_deadline().with_trusted_origin()),
        Arc::new(bash::output(&jobs).with_own_deadline().with_trusted_origin()),
        Arc::new(bash::kill(&jobs).with_trusted_origin()),
        Arc::new(fs::read(files()).with_read_only()),
        Arc::new(fs::write(files(), &changes).with_trusted_origin()),
        Arc::new(fs::edit(files(), &changes).with_trusted_origin()),
        Arc::new(web::fetch(options.web.clone()).with_read_only()),
        Arc::new(tape::info().with_read_only().with_permissions(tape(TapeAccess::Read))),
        Arc::new(tape::search(&tape_reads).with_read_only().with_permissions(tape(TapeAccess::Read))),
        Arc::new(tape::handoff().with_permissions(tape(TapeAccess::Write))),
        Arc::new(tape::anchors(&tape_reads).with_read_only().with_permissions(tape(TapeAccess::Read))),
        Arc::new(tape::reset().with_command_only().with_permissions(tape(TapeAccess::Write))),
        Arc::new(artifact::read().with_permissions(artifacts)),
        Arc::new(knowledge::search().with_permissions(knowledge)),
        Arc::new(subagent::subagent().with_permissions(children)),
        Arc::new(skill::tool(skills.clone()).with_read_only()),
        Arc::new(model::tool().with_command_only().with_permissions(models)),
        Arc::new(quit::tool().with_command_only().with_read_only()),
        Arc::new(help::tool().with_command_only().with_read_only().with_permissions(tools)),
    ]
}

/// Access to resources of any name with these operations.
fn all_names<O: ResourceOperation>(operations: OperationSet<O>) -> ResourceAccess<O> {
    ResourceAccess { names: AllowList::All, operations }
}

/// A count with its noun, such as `1 line` and `2 lines`.
fn count_noun(count: impl Into<u128>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
