//! Comma commands: a line that starts with `,` runs a tool directly.
//!
//! # Syntax
//!
//! `,tape.info`, `,fs.read README.md`, `,fs.read path=README.md limit=20`: the tool's name, positional arguments, then
//! named arguments, with shell quoting. If no tool has that name, the whole line runs as a shell command, provided the
//! run's grant allows shell commands.

use capstan_hooks::contracts::CommandCall;
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, JsonObject, ToolOperation, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use crate::run_handle::RunHandle;

/// Tool that runs a line as a shell command.
const SHELL_TOOL: &str = "bash";
/// Tool that lists the commands.
const HELP_TOOL: &str = "help";

/// Runs a command line. A refused command is recorded as a `command` event too, if the tape is writable.
pub(crate) async fn run(line: &str, shell_commands: bool, handle: &RunHandle) -> Result<ToolOutput, ApiError> {
    let result = dispatch_command(line, shell_commands, handle).await;
    if let Err(error) = &result
        && handle.can_write_tape()
    {
        // The caller gets the reason in any case; failing to record it must not hide that.
        let _unrecorded = handle.api.tools.refuse_command(line, &error.message).await;
    }
    result
}

async fn dispatch_command(line: &str, shell_commands: bool, handle: &RunHandle) -> Result<ToolOutput, ApiError> {
    let tools = handle.api.tools.list().await?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (name, arguments) = match tools.iter().find(|tool| tool.name.as_str() == name) {
        Some(tool) => (name, parse_arguments(rest, tool)?),
        None if !is_unknown_tool(name, handle).await? => return Err(denied_error(name)),
        None if !shell_commands || !can_call(SHELL_TOOL, handle) => return Err(unknown_command_error(name, &tools)),
        None => (SHELL_TOOL, JsonObject::from_iter([("cmd".to_owned(), json!(line))])),
    };
    if !can_call(name, handle) {
        return Err(denied_error(name));
    }
    handle.api.tools.command(CommandCall { raw: line.to_owned(), name: name.to_owned(), arguments }).await
}

/// Returns true if no tool has this name, including tools the run may not use: a line that names a denied tool must not
/// reach the shell.
async fn is_unknown_tool(name: &str, handle: &RunHandle) -> Result<bool, ApiError> {
    match handle.api.tools.detail(name).await {
        Err(error) if error.code == ApiErrorCode::NotFound => Ok(true),
        Err(error) if error.code != ApiErrorCode::Unauthorized => Err(error),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn can_call(name: &str, handle: &RunHandle) -> bool {
    handle.authority.tools.allows(ToolOperation::Call, name)
}

fn denied_error(name: &str) -> ApiError {
    let message = format!("the command {name} is not allowed here");
    ApiError::new(ApiErrorCode::Unauthorized, message).with_cause(ErrorCode::CommandDenied)
}

fn unknown_command_error(name: &str, tools: &[ToolSpec]) -> ApiError {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let hint = match names.as_slice() {
        [] => "no command is allowed here".to_owned(),
        names if names.contains(&HELP_TOOL) => ",help lists the commands".to_owned(),
        names => format!("available commands: {}", names.join(", ")),
    };
    let message = format!("there is no command {name}; {hint}");
    ApiError::new(ApiErrorCode::NotFound, message).with_cause(ErrorCode::CommandUnknown)
}

/// Parses positional, then named arguments, typed by the tool's schema.
fn parse_arguments(text: &str, tool: &ToolSpec) -> Result<JsonObject, ApiError> {
    let Some(words) = shlex::split(text) else {
        return Err(invalid_command_error(format!("the quotes in {text:?} do not match")));
    };
    let parameters: Vec<&String> =
        tool.parameters.get("properties").and_then(Value::as_object).into_iter().flat_map(JsonObject::keys).collect();
    let mut arguments = JsonObject::new();
    let mut positions = parameters.iter();
    let mut seen_named = false;
    for word in words {
        let named_argument = word.split_once('=').filter(|(key, _)| parameters.iter().any(|known| known == key));
        let (key, value) = match &named_argument {
            Some((key, value)) => {
                seen_named = true;
                ((*key).to_owned(), (*value).to_owned())
            }
            None if seen_named => {
                return Err(invalid_command_error(match word.split_once('=') {
                    Some((key, _)) => format!("{} has no argument {key:?}", tool.name),
                    None => format!("positional argument {word:?} follows a named argument"),
                }));
            }
            None => match positions.next() {
                Some(key) => ((*key).clone(), word.clone()),
                None => {
                    return Err(invalid_command_error(format!(
                        "{} does not take another argument: {word:?}",
                        tool.name
                    )));
                }
            },
        };
        let value = coerce_argument(value, tool.parameters.pointer(&format!("/properties/{key}/type")));
        let value = value.map_err(|MistypedArgument { text, expected }| {
            // An unknown name was taken as a position.
            let unknown_name = text.split_once('=').filter(|_| named_argument.is_none());
            invalid_command_error(match unknown_name {
                Some((name, _)) => format!("{} has no argument {name:?}", tool.name),
                None => format!("the argument {key} of {} takes {expected}, not {text:?}", tool.name),
            })
        })?;
        if arguments.insert(key.clone(), value).is_some() {
            return Err(invalid_command_error(format!("the argument {key} is repeated")));
        }
    }
    Ok(arguments)
}

/// Argument that is not of the type its tool expects.
struct MistypedArgument {
    text: String,
    /// Name of the type.
    expected: String,
}

/// Converts `text` to the type named by the schema; a schema names one type or a list of types. The tool itself checks
/// the value.
fn coerce_argument(text: String, kind: Option<&Value>) -> Result<Value, MistypedArgument> {
    let kinds: Vec<&str> = match kind {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(Value::String(text));
    }
    serde_json::from_str(&text).map_err(|_| {
        let names: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
        let expected = names.join(" or ");
        let article = if expected.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
        MistypedArgument { text, expected: format!("{article} {expected}") }
    })
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
    fn a03_command_line_starts_with_a_comma() {
        assert_eq!(parse_command_line(",help"), Some("help"));
        assert_eq!(parse_command_line("  , tape.info "), Some("tape.info"));
        assert_eq!(parse_command_line("hello, world"), None);
        assert_eq!(parse_command_line(","), None);
    }

    #[test]
    fn a03_arguments_are_positional_then_named_with_shell_quoting() {
        let parse = |text| parse_arguments(text, &read_tool_spec()).map(Value::Object);
        assert_eq!(parse("README.md").unwrap(), json!({"path": "README.md"}));
        assert_eq!(parse("'a b.md' limit=3").unwrap(), json!({"path": "a b.md", "limit": 3}));
        assert_eq!(parse("path=\"x=y\"").unwrap(), json!({"path": "x=y"}));
        assert_eq!(parse("123").unwrap(), json!({"path": "123"}), "typed by the schema");
        assert_eq!(parse("a=b").unwrap(), json!({"path": "a=b"}), "not a parameter, so positional");
    }

    #[test]
    fn a03_bad_arguments_are_refused_with_the_reason() {
        let refusal = |text| parse_arguments(text, &read_tool_spec()).unwrap_err().message;
        assert!(refusal("'open").contains("quotes"));
        assert!(refusal("a 1 b").contains("does not take another argument"));
        assert!(refusal("path=a b").contains("follows a named argument"));
        assert!(refusal("a path=b").contains("repeated"));
        assert!(refusal("path=a bogus=b").contains("has no argument \"bogus\""));
        assert_eq!(refusal("a bogus=1"), "fs.read has no argument \"bogus\"");
        assert_eq!(refusal("a limit=abc"), "the argument limit of fs.read takes an integer, not \"abc\"");
        assert_eq!(refusal("a abc"), "the argument limit of fs.read takes an integer, not \"abc\"");
    }
}
