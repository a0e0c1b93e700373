//! `capstan skills`.

use capstan_agent::skills::{InvalidSkill, ShadowedSkill, Skill, SkillCatalog};
use capstan_protocol::{ErrorCode, ExitClass};
use clap::Subcommand;
use serde_json::{Value, json};

use super::trust::untrusted_notice;
use super::{CommandContext, print, print_json, print_lines, replace_control_chars};
use crate::CommandError;

#[derive(Subcommand)]
pub(crate) enum SkillsCommand {
    /// List the skills of the workspace, of the user, and built into Capstan
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the instructions of a skill
    Show {
        /// Name of the skill
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Report invalid skills, which the agent ignores
    ///
    /// Exits with 0 if all skills are valid, and with 1 otherwise.
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(context: &CommandContext<'_>, command: SkillsCommand) -> Result<(), CommandError> {
    let dirs = &context.config.tools.skills;
    let catalog = dirs.find(&context.workspace);
    if let Some(notice) = untrusted_notice(&context.config, &context.workspace) {
        stderr_line!("note: {notice}");
    }
    match command {
        SkillsCommand::List { json } => list_skills(&catalog, json),
        SkillsCommand::Show { name, json } => {
            // A user who decides about a workspace can read its skills before.
            let of_workspace = dirs.find_in_workspace(&context.workspace);
            let skill = catalog.skill(&name).or_else(|| of_workspace.skill(&name));
            let skill = skill.ok_or_else(|| unknown_skill_error(&name, &catalog))?;
            if json {
                return print_json(&skill_to_json(skill, Some(&skill.body)));
            }
            print_lines(skill.body.lines().map(replace_control_chars))
        }
        SkillsCommand::Check { json } => check_skills(&catalog, json),
    }
}

fn list_skills(catalog: &SkillCatalog, json: bool) -> Result<(), CommandError> {
    if json {
        return print_json(&catalog.skills.iter().map(|skill| skill_to_json(skill, None)).collect::<Vec<_>>());
    }
    let width = catalog.skills.iter().map(|skill| skill.name.len()).max().unwrap_or_default();
    print_lines(catalog.skills.iter().map(|skill| {
        let (name, origin) = (&skill.name, skill.origin.as_str());
        replace_control_chars(&format!("{name:width$}  {origin:9}  {}", skill.description))
    }))?;
    report_shadowed(catalog);
    if !catalog.invalid.is_empty() {
        stderr_line!("note: {} invalid; run `capstan skills check` for details", catalog.invalid.len());
    }
    Ok(())
}

/// Reports skills that are not used because of another one of the same name.
fn report_shadowed(catalog: &SkillCatalog) {
    for shadowed in &catalog.shadowed {
        stderr_line!("warning: {shadowed}");
    }
}

fn shadowed_skill_to_json(one: &ShadowedSkill) -> Value {
    json!({ "name": one.name, "origin": one.origin.as_str(), "replaced_by": one.used.as_str() })
}

fn check_skills(catalog: &SkillCatalog, json: bool) -> Result<(), CommandError> {
    if json {
        print_json(&json!({
            "valid": catalog.skills.iter().map(|skill| &skill.name).collect::<Vec<_>>(),
            "shadowed": catalog.shadowed.iter().map(shadowed_skill_to_json).collect::<Vec<_>>(),
            "invalid": catalog.invalid.iter().map(invalid_skill_to_json).collect::<Vec<_>>(),
        }))?;
    } else if catalog.invalid.is_empty() {
        print(&format!("all {} skills are valid", catalog.skills.len()))?;
    } else {
        print_lines(
            catalog.invalid.iter().map(|one| replace_control_chars(&format!("{}: {}", one.path.display(), one.reason))),
        )?;
    }
    if !json {
        report_shadowed(catalog);
    }
    match catalog.invalid.len() {
        0 => Ok(()),
        1 => Err(CommandError::new(ErrorCode::SkillInvalid, "1 skill is invalid")),
        count => Err(CommandError::new(ErrorCode::SkillInvalid, format!("{count} skills are invalid"))),
    }
}

fn unknown_skill_error(name: &str, catalog: &SkillCatalog) -> CommandError {
    let is_invalid =
        |one: &&InvalidSkill| one.path.parent().and_then(|dir| dir.file_name()).is_some_and(|file| file == name);
    match catalog.invalid.iter().find(is_invalid) {
        Some(one) => CommandError::new(ErrorCode::SkillInvalid, format!("{}: {}", one.path.display(), one.reason))
            .with_exit(ExitClass::Usage),
        None => CommandError::new(ErrorCode::SkillUnknown, format!("unknown skill {name:?}")),
    }
}

fn skill_to_json(skill: &Skill, body: Option<&String>) -> Value {
    let mut object = json!({
        "name": skill.name,
        "description": skill.description,
        "origin": skill.origin.as_str(),
        "folder": skill.folder,
    });
    if let Some(body) = body {
        object["instructions"] = json!(body);
    }
    object
}

fn invalid_skill_to_json(one: &InvalidSkill) -> Value {
    json!({ "path": one.path, "origin": one.origin.as_str(), "reason": one.reason })
}
