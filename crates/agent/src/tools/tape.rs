//! `tape.info`, `tape.search`, `tape.handoff`, `tape.anchors`, `tape.reset`: the session's own tape.

use capstan_hooks::contracts::{FnTool, TapeEntry, ToolContext, ToolError};
use capstan_protocol::{ApiError, JsonObject, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::typed_tool::{NoArguments, typed_tool};

/// How many entries a search shows when nobody says.
const DEFAULT_SEARCH_ENTRIES: usize = 10;
/// How many anchors are listed when nobody says.
const DEFAULT_LISTED_ANCHORS: usize = 20;
/// How much of an entry a search shows.
const SEARCH_EXCERPT_CHARS: usize = 300;

fn to_tool_error(error: ApiError) -> ToolError {
    ToolError::new(error.message)
}

pub(super) fn info() -> FnTool {
    typed_tool(
        "tape.info",
        "Tells about this conversation's tape.",
        |_: NoArguments, context: ToolContext| async move {
            let info = context.api.tape.info().await.map_err(to_tool_error)?;
            let last = info.last_anchor.as_deref().unwrap_or("none");
            Ok(ToolOutput::ok(format!(
                "tape: {}\nlast entry: #{}\nanchors: {}\nlast anchor: {last}\nentries since last anchor: {}",
                info.name, info.head, info.anchors, info.entries_since_last_anchor
            )))
        },
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeSearchArgs {
    /// The words to look for; a typo is forgiven.
    query: String,
    /// How many entries to show at most.
    limit: Option<usize>,
}

pub(super) fn search() -> FnTool {
    let description = "Searches this conversation's tape, also before the last anchor; newest first.";
    typed_tool("tape.search", description, |arguments: TapeSearchArgs, context: ToolContext| async move {
        let limit = arguments.limit.unwrap_or(DEFAULT_SEARCH_ENTRIES);
        let found = context.api.tape.search(&arguments.query, limit).await.map_err(to_tool_error)?;
        if found.is_empty() {
            return Ok(ToolOutput::ok(format!("nothing found for {:?}", arguments.query)));
        }
        let line = |entry: &TapeEntry| {
            let text = entry.payload.to_string();
            let excerpt = context.secrets.first_chars(&text, SEARCH_EXCERPT_CHARS);
            format!("#{} {} {}: {excerpt}", entry.id, entry.date, entry.kind)
        };
        Ok(ToolOutput::ok(found.iter().map(line).collect::<Vec<_>>().join("\n")))
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeHandoffArgs {
    /// The name of the anchor, such as `phase-1`.
    name: String,
    /// What the next phase must know.
    summary: Option<String>,
    /// Further state, as an object.
    state: Option<JsonObject>,
}

pub(super) fn handoff() -> FnTool {
    let description = "Begins a new phase: writes an anchor with what the next phase must know. \
        Context starts from it; nothing before it is lost.";
    typed_tool("tape.handoff", description, |arguments: TapeHandoffArgs, context: ToolContext| async move {
        let mut state = arguments.state.unwrap_or_default();
        if let Some(summary) = arguments.summary {
            state.insert("summary".to_owned(), json!(summary));
        }
        context.api.tape.handoff(&arguments.name, state).await.map_err(to_tool_error)?;
        Ok(ToolOutput::ok(format!("anchor added: {}", arguments.name)))
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeAnchorsArgs {
    /// How many to list at most.
    limit: Option<usize>,
}

pub(super) fn anchors() -> FnTool {
    let description = "Lists the anchors of this conversation's tape, newest first.";
    typed_tool("tape.anchors", description, |arguments: TapeAnchorsArgs, context: ToolContext| async move {
        let limit = arguments.limit.unwrap_or(DEFAULT_LISTED_ANCHORS);
        let anchors = context.api.tape.anchors(limit).await.map_err(to_tool_error)?;
        let line = |entry: &TapeEntry| {
            let state = entry.payload.get("state").unwrap_or(&Value::Null);
            format!("#{} {} {} {state}", entry.id, entry.date, entry.name().unwrap_or_default())
        };
        let lines: Vec<String> = anchors.iter().map(line).collect();
        Ok(ToolOutput::ok(if lines.is_empty() { "no anchors".to_owned() } else { lines.join("\n") }))
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeResetArgs {
    /// Whether what was said so far is kept for good.
    #[serde(default)]
    archive: bool,
}

pub(super) fn reset() -> FnTool {
    let description = "Begins this conversation anew, with nothing of what was said in its context. \
        Only for people, as a command; an agent that wants its context to begin anew uses tape.handoff.";
    typed_tool("tape.reset", description, |arguments: TapeResetArgs, context: ToolContext| async move {
        context.api.tape.reset(arguments.archive).await.map_err(to_tool_error)?;
        Ok(ToolOutput::ok(if arguments.archive {
            "the conversation begins anew; what was said is archived"
        } else {
            "the conversation begins anew"
        }))
    })
}
