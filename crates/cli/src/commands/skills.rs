//! `capstan skills list`, `show`, `check`.

use capstan_agent::skills::{InvalidSkill, Skill, SkillCatalog};
use capstan_protocol::{ErrorCode, ExitClass};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{print, print_json, print_lines, replace_control_chars};
use crate::CommandError;
use crate::command_line::CommandContext;

#[derive(Subcommand)]
pub(crate) enum SkillsCommand {
    /// Lists the skills: the workspace's, your own, and those that come with Capstan.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints the instructions of a skill.
    Show {
        /// Its name.
        name: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Says what is wrong with skills that are not used.
    ///
    /// Exits with 0 when nothing is, and with 1 otherwise.
    Check {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(context: &CommandContext<'_>, command: SkillsCommand) -> Result<(), CommandError> {
    let found = context.config.tools.skills.find(&context.workspace);
    match command {
        SkillsCommand::List { json } => list_skills(&found, json),
        SkillsCommand::Show { name, json } => {
            let skill = found.skill(&name).ok_or_else(|| unknown_skill_error(&name, &found))?;
            if json {
                return print_json(&skill_to_json(skill, Some(&skill.body)));
            }
            print_lines(skill.body.lines().map(replace_control_chars))
        }
        SkillsCommand::Check { json } => check_skills(&found, json),
    }
}

fn list_skills(found: &SkillCatalog, json: bool) -> Result<(), CommandError> {
    if json {
        return print_json(&found.skills.iter().map(|skill| skill_to_json(skill, None)).collect::<Vec<_>>());
    }
    let width = found.skills.iter().map(|skill| skill.name.len()).max().unwrap_or_default();
    print_lines(found.skills.iter().map(|skill| {
        let (name, origin) = (&skill.name, skill.origin.as_str());
        replace_control_chars(&format!("{name:width$}  {origin:9}  {}", skill.description))
    }))?;
    if !found.invalid.is_empty() {
        stderr_line!("note: {} not used; `capstan skills check` says why", found.invalid.len());
    }
    Ok(())
}

fn check_skills(found: &SkillCatalog, json: bool) -> Result<(), CommandError> {
    if json {
        print_json(&json!({
            "valid": found.skills.iter().map(|skill| &skill.name).collect::<Vec<_>>(),
            "invalid": found.invalid.iter().map(invalid_skill_to_json).collect::<Vec<_>>(),
        }))?;
    } else if found.invalid.is_empty() {
        print(&format!("all {} skills are valid", found.skills.len()))?;
    } else {
        print_lines(
            found.invalid.iter().map(|one| replace_control_chars(&format!("{}: {}", one.path.display(), one.reason))),
        )?;
    }
    match found.invalid.len() {
        0 => Ok(()),
        1 => Err(CommandError::new(ErrorCode::SkillInvalid, "a skill is not used")),
        count => Err(CommandError::new(ErrorCode::SkillInvalid, format!("{count} skills are not used"))),
    }
}

fn unknown_skill_error(name: &str, found: &SkillCatalog) -> CommandError {
    let is_invalid =
        |one: &&InvalidSkill| one.path.parent().and_then(|folder| folder.file_name()).is_some_and(|it| it == name);
    match found.invalid.iter().find(is_invalid) {
        Some(one) => CommandError::new(ErrorCode::SkillInvalid, format!("{}: {}", one.path.display(), one.reason))
            .with_exit(ExitClass::Usage),
        None => CommandError::new(ErrorCode::SkillUnknown, format!("there is no skill {name:?}")),
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
