//! `capstan skills list`, `show`, `check`.

use capstan_agent::skills::{Found, Invalid, Skill};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{plain, print, print_json, print_lines};
use crate::command_line::Context;
use crate::{Exit, Failure};

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

pub(crate) fn run(context: &Context<'_>, command: SkillsCommand) -> Result<(), Failure> {
    let found = context.config.tools.skills.find(&context.workspace);
    match command {
        SkillsCommand::List { json } => list(&found, json),
        SkillsCommand::Show { name, json } => {
            let skill = found.skill(&name).ok_or_else(|| unknown(&name, &found))?;
            if json {
                return print_json(&in_json(skill, Some(&skill.body)));
            }
            print_lines(skill.body.lines().map(plain))
        }
        SkillsCommand::Check { json } => check(&found, json),
    }
}

fn list(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(&found.skills.iter().map(|skill| in_json(skill, None)).collect::<Vec<_>>());
    }
    let width = found.skills.iter().map(|skill| skill.name.len()).max().unwrap_or_default();
    print_lines(found.skills.iter().map(|skill| {
        let (name, origin) = (&skill.name, skill.origin.as_str());
        plain(&format!("{name:width$}  {origin:9}  {}", skill.description))
    }))?;
    if !found.invalid.is_empty() {
        complain!("note: {} not used; `capstan skills check` says why", found.invalid.len());
    }
    Ok(())
}

fn check(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        print_json(&json!({
            "valid": found.skills.iter().map(|skill| &skill.name).collect::<Vec<_>>(),
            "invalid": found.invalid.iter().map(wrong).collect::<Vec<_>>(),
        }))?;
    } else if found.invalid.is_empty() {
        print(&format!("all {} skills are valid", found.skills.len()))?;
    } else {
        print_lines(found.invalid.iter().map(|one| plain(&format!("{}: {}", one.path.display(), one.reason))))?;
    }
    match found.invalid.len() {
        0 => Ok(()),
        1 => Err(Failure::new("skill-invalid", "a skill is not used", Exit::Failed)),
        count => Err(Failure::new("skill-invalid", format!("{count} skills are not used"), Exit::Failed)),
    }
}

fn unknown(name: &str, found: &Found) -> Failure {
    let is_invalid =
        |one: &&Invalid| one.path.parent().and_then(|folder| folder.file_name()).is_some_and(|it| it == name);
    match found.invalid.iter().find(is_invalid) {
        Some(one) => Failure::new("skill-invalid", format!("{}: {}", one.path.display(), one.reason), Exit::Usage),
        None => Failure::new("skill-unknown", format!("there is no skill {name:?}"), Exit::Usage),
    }
}

fn in_json(skill: &Skill, body: Option<&String>) -> Value {
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

fn wrong(one: &Invalid) -> Value {
    json!({ "path": one.path, "origin": one.origin.as_str(), "reason": one.reason })
}
