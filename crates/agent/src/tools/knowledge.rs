//! `knowledge.search`: what the knowledge bases of this run say.

use std::fmt::Write as _;

use capstan_hooks::contracts::{FnTool, RetrieveCall, RetrievedPage, ToolContext, ToolError};
use capstan_protocol::{ApiError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed::tool;

/// How many passages are shown when nobody says, and at most.
const DEFAULT_LIMIT: usize = 5;
const MOST: usize = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The words to look for.
    query: String,
    /// The knowledge base; needed only where there are several.
    base: Option<String>,
    /// How many passages to show at most.
    limit: Option<usize>,
    /// Where the last answer ended, as it says there.
    cursor: Option<String>,
}

fn refused(error: ApiError) -> ToolError {
    ToolError::new(error.message)
}

pub(super) fn search() -> FnTool {
    let description = "Searches a knowledge base for passages with the words of a query, the best first. \
        Without a base, where there are several, it tells which there are.";
    let search = tool("knowledge.search", description, |arguments: Search, context: ToolContext| async move {
        let Search { query, base, limit, cursor } = arguments;
        let base = match base {
            Some(base) => base,
            None => only_base(&context).await?,
        };
        let limit = limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MOST);
        let call = RetrieveCall { base, question: query.clone(), cursor, limit };
        let found = context.api.knowledge.retrieve(call).await.map_err(refused)?;
        Ok(ToolOutput::ok(shown(&query, &found)))
    });
    search.that_only_looks().that_asks_knowledge()
}

/// The one base there is.
async fn only_base(context: &ToolContext) -> Result<String, ToolError> {
    let mut bases = context.api.knowledge.list().await.map_err(refused)?;
    match bases.len() {
        0 => Err(ToolError::new("there is no knowledge base here that can be listed; name the one to ask as `base`")),
        1 => Ok(bases.remove(0).id),
        _ => {
            let lines: Vec<String> = bases.iter().map(|base| format!("- {}: {}", base.id, base.description)).collect();
            Err(ToolError::new(format!("there are several; name one as `base`:\n{}", lines.join("\n"))))
        }
    }
}

fn shown(query: &str, found: &RetrievedPage) -> String {
    let mut text = String::new();
    for passage in &found.passages.items {
        let line = passage.line.map(|line| format!(":{line}")).unwrap_or_default();
        // Writing to a text does not fail.
        let _ = write!(text, "[{}{line}, score {:.2}]\n{}\n\n", passage.source, passage.score, passage.text);
    }
    if text.is_empty() {
        text = format!("nothing found for {query:?}\n\n");
    }
    if let Some(next) = &found.passages.next {
        let _ = writeln!(text, "[there is more: ask the same again with cursor {next}]");
    }
    if let Some(left_out) = &found.left_out {
        let _ = writeln!(text, "[not searched: {left_out}]");
    }
    text.trim_end().to_owned()
}
