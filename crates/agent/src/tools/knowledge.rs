//! `knowledge.search`: what the knowledge bases of this run say.

use std::fmt::Write as _;

use capstan_hooks::contracts::{FnTool, RetrieveCall, RetrievedPage, ToolContext, ToolError};
use capstan_protocol::{ApiError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::typed_tool;

/// How many passages are shown when nobody says, and at most.
const DEFAULT_PASSAGES: usize = 5;
const MAX_PASSAGES: usize = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KnowledgeSearchArgs {
    /// The words to look for.
    query: String,
    /// The knowledge base; needed only where there are several.
    base: Option<String>,
    /// How many passages to show at most.
    limit: Option<usize>,
    /// Where the last answer ended, as it says there.
    cursor: Option<String>,
}

fn to_tool_error(error: ApiError) -> ToolError {
    ToolError::new(error.message)
}

pub(super) fn search() -> FnTool {
    let description = "Searches a knowledge base for passages with the words of a query, the best first. \
        Without a base, where there are several, it tells which there are.";
    let search = typed_tool(
        "knowledge.search",
        description,
        |arguments: KnowledgeSearchArgs, context: ToolContext| async move {
            let KnowledgeSearchArgs { query, base, limit, cursor } = arguments;
            let base = match base {
                Some(base) => base,
                None => only_base(&context).await?,
            };
            let limit = limit.unwrap_or(DEFAULT_PASSAGES).clamp(1, MAX_PASSAGES);
            let call = RetrieveCall { base, question: query.clone(), cursor, limit };
            let found = context.api.knowledge.retrieve(call).await.map_err(to_tool_error)?;
            Ok(ToolOutput::ok(render_passages(&query, &found)))
        },
    );
    search.with_read_only().with_knowledge()
}

/// The one base there is.
async fn only_base(context: &ToolContext) -> Result<String, ToolError> {
    let mut bases = context.api.knowledge.list().await.map_err(to_tool_error)?;
    match bases.len() {
        0 => Err(ToolError::new("there is no knowledge base here that can be listed; name the one to ask as `base`")),
        1 => Ok(bases.remove(0).id),
        _ => {
            let lines: Vec<String> = bases.iter().map(|base| format!("- {}: {}", base.id, base.description)).collect();
            Err(ToolError::new(format!("there are several; name one as `base`:\n{}", lines.join("\n"))))
        }
    }
}

fn render_passages(query: &str, found: &RetrievedPage) -> String {
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
