//! `tape.info`, `tape.search`, `tape.handoff`, `tape.anchors`, `tape.reset`: tools for the session's own tape.

use capstan_hooks::contracts::{FnTool, TapeEntry, ToolContext, ToolError};
use capstan_protocol::{JsonObject, ToolOutput, escape_line};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::typed_tool::{NoArguments, to_tool_error, typed_tool};
use super::work_slots::WorkSlots;

/// Number of entries shown by a search by default.
const DEFAULT_SEARCH_ENTRIES: usize = 10;
/// Maximum number of entries shown, each of which is read as a whole.
const MAX_SEARCH_ENTRIES: usize = 50;
/// Number of anchors listed by default.
const DEFAULT_LISTED_ANCHORS: usize = 20;
/// Maximum number of searches and lists of anchors that a host makes for all sessions at the same time. Others wait, so that
/// neither the memory nor the connections of the database are used up.
const MAX_CONCURRENT_TAPE_READS: usize = 2;
/// Beginnings of the names of anchors that the host adds itself.
const RESERVED_ANCHOR_PREFIXES: [&str; 2] = ["session/", "auto_handoff/"];
/// Maximum length of the name of an anchor.
const MAX_ANCHOR_NAME_CHARS: usize = 200;
/// Maximum length of an entry's excerpt in search results.
const SEARCH_EXCERPT_CHARS: usize = 300;

/// Slots for reading many entries of a tape, shared by the tools that do.
pub(super) fn read_slots() -> WorkSlots {
    WorkSlots::new(MAX_CONCURRENT_TAPE_READS)
}

pub(super) fn info() -> FnTool {
    typed_tool(
        "tape.info",
        "Shows facts about this conversation's tape.",
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
    /// Words to search for; small typos are tolerated.
    query: String,
    /// Maximum number of entries to show: 10 by default, at most 50.
    limit: Option<usize>,
}

pub(super) fn search(slots: &WorkSlots) -> FnTool {
    let description = "Searches this conversation's tape, including entries before the last anchor; newest first.";
    let slots = slots.clone();
    typed_tool("tape.search", description, move |arguments: TapeSearchArgs, context: ToolContext| {
        let slots = slots.clone();
        async move { search_tape(&slots, arguments, context).await }
    })
}

async fn search_tape(
    slots: &WorkSlots,
    arguments: TapeSearchArgs,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let limit = arguments.limit.unwrap_or(DEFAULT_SEARCH_ENTRIES).min(MAX_SEARCH_ENTRIES);
    let _slot = slots.acquire().await.map_err(ToolError::new)?;
    let entries = context.api.tape.search(&arguments.query, limit).await.map_err(to_tool_error)?;
    if entries.is_empty() {
        return Ok(ToolOutput::ok(format!("nothing found for {:?}", arguments.query)));
    }
    let line = |entry: &TapeEntry| {
        let text = entry.payload.to_string();
        let excerpt = context.secrets.first_chars(&text, SEARCH_EXCERPT_CHARS);
        format!("#{} {} {}: {excerpt}", entry.id, entry.date, entry.kind)
    };
    Ok(ToolOutput::ok(entries.iter().map(line).collect::<Vec<_>>().join("\n")))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeHandoffArgs {
    /// Name of the anchor, such as `phase-1`.
    name: String,
    /// Summary for the next phase.
    summary: Option<String>,
    /// Additional state, as an object; fields: `task`, `decisions`, `open_questions`, `files`, `next_steps`.
    state: Option<JsonObject>,
}

pub(super) fn handoff() -> FnTool {
    let description = "Starts a new phase: writes an anchor with what the next phase must know: the task, decisions, \
        open questions, files and next steps. The context starts at the anchor; everything before it stays searchable.";
    typed_tool("tape.handoff", description, |arguments: TapeHandoffArgs, context: ToolContext| async move {
        check_anchor_name(&arguments.name)?;
        let mut state = arguments.state.unwrap_or_default();
        if let Some(summary) = arguments.summary {
            state.insert("summary".to_owned(), json!(summary));
        }
        context.api.tape.handoff(&arguments.name, state).await.map_err(to_tool_error)?;
        Ok(ToolOutput::ok(format!("anchor added: {}", arguments.name)))
    })
}

/// Refuses names that could be taken for an anchor of the host, or for more than a name where anchors are listed.
fn check_anchor_name(name: &str) -> Result<(), ToolError> {
    let lowercase = name.trim().to_lowercase();
    if RESERVED_ANCHOR_PREFIXES.iter().any(|prefix| lowercase.starts_with(prefix)) {
        return Err(ToolError::new(format!("anchors named {name:?} are added by the host alone; choose another name")));
    }
    if escape_line(name) != name {
        return Err(ToolError::new("the name of an anchor must be one line of visible characters"));
    }
    if name.chars().count() > MAX_ANCHOR_NAME_CHARS {
        let message = format!("the name of an anchor is limited to {MAX_ANCHOR_NAME_CHARS} characters");
        return Err(ToolError::new(message));
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeAnchorsArgs {
    /// Maximum number of anchors to list.
    limit: Option<usize>,
}

pub(super) fn anchors(slots: &WorkSlots) -> FnTool {
    let description = "Lists the anchors of this conversation's tape, newest first.";
    let slots = slots.clone();
    typed_tool("tape.anchors", description, move |arguments: TapeAnchorsArgs, context: ToolContext| {
        let slots = slots.clone();
        async move { list_anchors(&slots, arguments, context).await }
    })
}

async fn list_anchors(
    slots: &WorkSlots,
    arguments: TapeAnchorsArgs,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let _slot = slots.acquire().await.map_err(ToolError::new)?;
    let limit = arguments.limit.unwrap_or(DEFAULT_LISTED_ANCHORS);
    let anchors = context.api.tape.anchors(limit).await.map_err(to_tool_error)?;
    let line = |entry: &TapeEntry| {
        let state = entry.payload.get("state").unwrap_or(&Value::Null);
        format!("#{} {} {} {state}", entry.id, entry.date, entry.name().unwrap_or_default())
    };
    let lines: Vec<String> = anchors.iter().map(line).collect();
    Ok(ToolOutput::ok(if lines.is_empty() { "no anchors".to_owned() } else { lines.join("\n") }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TapeResetArgs {
    /// Mark the old generation of the tape as archived.
    #[serde(default)]
    archive: bool,
}

pub(super) fn reset() -> FnTool {
    let description = "Starts this conversation over with an empty context. \
        Only for people, as a command; an agent that wants a fresh context uses tape_handoff.";
    typed_tool("tape.reset", description, |arguments: TapeResetArgs, context: ToolContext| async move {
        context.api.tape.reset(arguments.archive).await.map_err(to_tool_error)?;
        Ok(ToolOutput::ok(if arguments.archive {
            "the conversation was reset; the old one is archived"
        } else {
            "the conversation was reset"
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::check_anchor_name;

    #[test]
    fn x06_anchor_of_a_model_cannot_imitate_one_of_the_host() {
        let reserved = ["session/start", "auto_handoff/context_overflow", " Session/Start", "AUTO_HANDOFF/x"];
        let hidden = ["a\nb", "a\rb", "a\u{2028}b", "a\u{202e}b", "a\u{1b}[2J"];
        for name in reserved.into_iter().chain(hidden).chain([&*"x".repeat(201)]) {
            assert!(check_anchor_name(name).is_err(), "{name:?}");
        }
        for name in ["phase-1", "después/数据", "sessions", "my session/start"] {
            assert!(check_anchor_name(name).is_ok(), "{name:?}");
        }
    }
}
