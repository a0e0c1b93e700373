//! Comma commands: a line that starts with `,` runs a tool directly.
//!
//! `,tape.info`, `,fs.read README.md`, `,fs.read path=README.md limit=20`: the name, then arguments by position, then
//! by name, with the quoting of a shell. A name that is no tool runs the whole line as a shell command where the run's
//! grant allows that.

use capstan_hooks::contracts::CommandCall;
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, JsonObject, ToolOperation, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use crate::run_handle::RunHandle;

/// The tool that runs a line as a shell command.
const SHELL_TOOL: &str = "bash";
/// The tool that says what commands there are.
const HELP_TOOL: &str = "help";

/// Runs a command line. One that cannot be run leaves a `command` event too, where the tape may be written to.
pub(crate) async fn run(line: &str, shell_commands: bool, given: &RunHandle) -> Result<ToolOutput, ApiError> {
    let ran = dispatch_command(line, shell_commands, given).await;
    if let Err(error) = &ran
        && given.can_write_tape()
    {
        // Whoever gave the command is told why it could not be run, whatever becomes of the note.
        let _unwritten = given.api.tools.refuse_command(line, &error.message).await;
    }
    ran
}

async fn dispatch_command(line: &str, shell_commands: bool, given: &RunHandle) -> Result<ToolOutput, ApiError> {
    let tools = given.api.tools.list().await?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (name, arguments) = match tools.iter().find(|tool| tool.name.as_str() == name) {
        Some(tool) => (name, parse_arguments(rest, tool)?),
        None if !is_unknown_tool(name, given).await? => return Err(denied_error(name)),
        None if !shell_commands || !can_call(SHELL_TOOL, given) => return Err(unknown_command_error(name, &tools)),
        None => (SHELL_TOOL, JsonObject::from_iter([("cmd".to_owned(), json!(line))])),
    };
    if !can_call(name, given) {
        return Err(denied_error(name));
    }
    given.api.tools.command(CommandCall { raw: line.to_owned(), name: name.to_owned(), arguments }).await
}

/// Whether no tool has this name, also none that the run may not use: what is meant for a tool is nothing for a shell.
async fn is_unknown_tool(name: &str, given: &RunHandle) -> Result<bool, ApiError> {
    match given.api.tools.detail(name).await {
        Err(error) if error.code == ApiErrorCode::NotFound => Ok(true),
        Err(error) if error.code != ApiErrorCode::Unauthorized => Err(error),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn can_call(name: &str, given: &RunHandle) -> bool {
    given.authority.tools.allows(ToolOperation::Call, name)
}

fn denied_error(name: &str) -> ApiError {
    let message = format!("the command {name} is not allowed here");
    ApiError::new(ApiErrorCode::Unauthorized, message).with_cause(ErrorCode::CommandDenied)
}

fn unknown_command_error(name: &str, tools: &[ToolSpec]) -> ApiError {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let others = match names.as_slice() {
        [] => "none is allowed here".to_owned(),
        names if names.contains(&HELP_TOOL) => ",help lists those there are".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    let message = format!("there is no command {name}; {others}");
    ApiError::new(ApiErrorCode::NotFound, message).with_cause(ErrorCode::CommandUnknown)
}

/// Arguments by position, then by name, typed as the tool's schema says.
fn parse_arguments(text: &str, tool: &ToolSpec) -> Result<JsonObject, ApiError> {
    let Some(words) = shlex::split(text) else {
        return Err(invalid_command_error(format!("the quotes in {text:?} do not match")));
    };
    let parameters: Vec<&String> =
        tool.parameters.get("properties").and_then(Value::as_object).into_iter().flat_map(JsonObject::keys).collect();
    let mut arguments = JsonObject::new();
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
                return Err(invalid_command_error(match word.split_once('=') {
                    Some((key, _)) => format!("{} has no argument {key:?}", tool.name),
                    None => format!("{word:?} stands after an argument by name"),
                }));
            }
            None => match positions.next() {
                Some(key) => ((*key).clone(), word),
                None => return Err(invalid_command_error(format!("{} takes no further argument {word:?}", tool.name))),
            },
        };
        let value = coerce_argument(value, tool.parameters.pointer(&format!("/properties/{key}/type")));
        if arguments.insert(key.clone(), value).is_some() {
            return Err(invalid_command_error(format!("the argument {key} is given twice")));
        }
    }
    Ok(arguments)
}

/// The text as the type the schema asks for, where it can be read as that; a schema may name a type or a list of them.
fn coerce_argument(text: String, kind: Option<&Value>) -> Value {
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

fn invalid_command_error(message: String) -> ApiError {
    ApiError::new(ApiErrorCode::InvalidArgument, message).with_cause(ErrorCode::CommandInvalid)
}

#[cfg(test)]
mod tests {
    use super::parse_arguments;
    use capstan_protocol::{ToolSpec, parse_command_line};
    use serde_json::{Value, json};

    fn read_tool_spec() -> ToolSpec {
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
        assert_eq!(parse_command_line(",help"), Some("help"));
        assert_eq!(parse_command_line("  , tape.info "), Some("tape.info"));
        assert_eq!(parse_command_line("hello, world"), None);
        assert_eq!(parse_command_line(","), None);
    }

    #[test]
    fn a03_arguments_are_positional_then_by_name_with_shell_quoting() {
        let parse = |text| parse_arguments(text, &read_tool_spec()).map(Value::Object);
        assert_eq!(parse("README.md").unwrap(), json!({"path": "README.md"}));
        assert_eq!(parse("'a b.md' limit=3").unwrap(), json!({"path": "a b.md", "limit": 3}));
        assert_eq!(parse("path=\"x=y\"").unwrap(), json!({"path": "x=y"}));
        assert_eq!(parse("123").unwrap(), json!({"path": "123"}), "typed by the schema");
        assert_eq!(parse("a=b").unwrap(), json!({"path": "a=b"}), "not a parameter, so a position");
    }

    #[test]
    fn a03_bad_arguments_are_refused_in_words() {
        let refuse = |text| parse_arguments(text, &read_tool_spec()).unwrap_err().message;
        assert!(refuse("'open").contains("quotes"));
        assert!(refuse("a 1 b").contains("no further argument"));
        assert!(refuse("path=a b").contains("after an argument by name"));
        assert!(refuse("a path=b").contains("twice"));
        assert!(refuse("path=a bogus=b").contains("has no argument \"bogus\""));
    }
}
