//! Comma commands: a line that starts with `,` runs a tool directly.
//!
//! `,tape.info`, `,fs.read README.md`, `,fs.read path=README.md limit=20`: the name, then arguments by position, then
//! by name, with the quoting of a shell. A name that is no tool runs the whole line as a shell command where the run's
//! grant allows that.

use capstan_hooks::contracts::CommandCall;
use capstan_protocol::{ApiError, ApiErrorCode, Map, ToolOutput, ToolSpec, ToolUse};
use serde_json::{Value, json};

use crate::given::Given;

/// The tool that runs a line as a shell command.
const SHELL: &str = "bash";
/// The tool that says what commands there are.
const HELP: &str = "help";

/// Runs a command line. One that cannot be run leaves a `command` event too, where the tape may be written to.
pub(crate) async fn run(line: &str, shell_commands: bool, given: &Given) -> Result<ToolOutput, ApiError> {
    let ran = find_and_run(line, shell_commands, given).await;
    if let Err(error) = &ran
        && given.writes()
    {
        // Whoever gave the command is told why it could not be run, whatever becomes of the note.
        let _unwritten = given.api.tools.refuse_command(line, &error.message).await;
    }
    ran
}

async fn find_and_run(line: &str, shell_commands: bool, given: &Given) -> Result<ToolOutput, ApiError> {
    let tools = given.api.tools.list().await?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (name, arguments) = match tools.iter().find(|tool| tool.name.as_str() == name) {
        Some(tool) => (name, arguments(rest, tool)?),
        None if !is_free(name, given).await? => return Err(denied(name)),
        None if !shell_commands || !may_call(SHELL, given) => return Err(unknown(name, &tools)),
        None => (SHELL, Map::from_iter([("cmd".to_owned(), json!(line))])),
    };
    if !may_call(name, given) {
        return Err(denied(name));
    }
    given.api.tools.command(CommandCall { raw: line.to_owned(), name: name.to_owned(), arguments }).await
}

/// Whether no tool has this name, also none that the run may not use: what is meant for a tool is nothing for a shell.
async fn is_free(name: &str, given: &Given) -> Result<bool, ApiError> {
    match given.api.tools.detail(name).await {
        Err(error) if error.code == ApiErrorCode::NotFound => Ok(true),
        Err(error) if error.code != ApiErrorCode::Unauthorized => Err(error),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn may_call(name: &str, given: &Given) -> bool {
    given.may.tools.allows(ToolUse::Call, name)
}

fn denied(name: &str) -> ApiError {
    let message = format!("the command {name} is not allowed here");
    ApiError::new(ApiErrorCode::Unauthorized, message).caused_by("command-denied")
}

fn unknown(name: &str, tools: &[ToolSpec]) -> ApiError {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let others = match names.as_slice() {
        [] => "none is allowed here".to_owned(),
        names if names.contains(&HELP) => ",help lists those there are".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    let message = format!("there is no command {name}; {others}");
    ApiError::new(ApiErrorCode::NotFound, message).caused_by("command-unknown")
}

/// Arguments by position, then by name, typed as the tool's schema says.
fn arguments(text: &str, tool: &ToolSpec) -> Result<Map, ApiError> {
    let Some(words) = shlex::split(text) else {
        return Err(invalid(format!("the quotes in {text:?} do not match")));
    };
    let parameters: Vec<&String> =
        tool.parameters.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
    let mut arguments = Map::new();
    let mut positions = parameters.iter();
    let mut named = false;
    for word in words {
        let by_name = word.split_once('=').filter(|(key, _)| parameters.iter().any(|known| known == key));
        let (key, value) = match by_name {
            Some((key, value)) => {
                named = true;
                (key.to_owned(), value.to_owned())
            }
            None if named => {
                return Err(invalid(match word.split_once('=') {
                    Some((key, _)) => format!("{} has no argument {key:?}", tool.name),
                    None => format!("{word:?} stands after an argument by name"),
                }));
            }
            None => match positions.next() {
                Some(key) => ((*key).clone(), word),
                None => return Err(invalid(format!("{} takes no further argument {word:?}", tool.name))),
            },
        };
        let value = typed(value, tool.parameters.pointer(&format!("/properties/{key}/type")));
        if arguments.insert(key.clone(), value).is_some() {
            return Err(invalid(format!("the argument {key} is given twice")));
        }
    }
    Ok(arguments)
}

/// The text as the type the schema asks for, where it can be read as that; a schema may name a type or a list of them.
fn typed(text: String, kind: Option<&Value>) -> Value {
    let is_text = match kind {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => true,
    };
    if is_text {
        return Value::String(text);
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ApiErrorCode::InvalidArgument, message).caused_by("command-invalid")
}

#[cfg(test)]
mod tests {
    use super::arguments;
    use capstan_protocol::{ToolSpec, command_line};
    use serde_json::{Value, json};

    fn read() -> ToolSpec {
        ToolSpec {
            name: "fs.read".into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {
                "path": {"type": "string"}, "limit": {"type": ["integer", "null"]}}})
            .into(),
        }
    }

    #[test]
    fn a03_a_command_is_a_line_that_starts_with_a_comma() {
        assert_eq!(command_line(",help"), Some("help"));
        assert_eq!(command_line("  , tape.info "), Some("tape.info"));
        assert_eq!(command_line("hello, world"), None);
        assert_eq!(command_line(","), None);
    }

    #[test]
    fn a03_arguments_are_positional_then_by_name_with_shell_quoting() {
        let parse = |text| arguments(text, &read()).map(Value::Object);
        assert_eq!(parse("README.md").unwrap(), json!({"path": "README.md"}));
        assert_eq!(parse("'a b.md' limit=3").unwrap(), json!({"path": "a b.md", "limit": 3}));
        assert_eq!(parse("path=\"x=y\"").unwrap(), json!({"path": "x=y"}));
        assert_eq!(parse("123").unwrap(), json!({"path": "123"}), "typed by the schema");
        assert_eq!(parse("a=b").unwrap(), json!({"path": "a=b"}), "not a parameter, so a position");
    }

    #[test]
    fn a03_bad_arguments_are_refused_in_words() {
        let refuse = |text| arguments(text, &read()).unwrap_err().message;
        assert!(refuse("'open").contains("quotes"));
        assert!(refuse("a 1 b").contains("no further argument"));
        assert!(refuse("path=a b").contains("after an argument by name"));
        assert!(refuse("a path=b").contains("twice"));
        assert!(refuse("path=a bogus=b").contains("has no argument \"bogus\""));
    }
}
