//! `knowledge.search`: searches the knowledge bases available to the run.

use std::fmt::Write as _;

use capstan_hooks::contracts::{FnTool, RetrieveCall, RetrievedPage, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{to_tool_error, typed_tool};

/// Number of passages shown by default, and at most.
const DEFAULT_PASSAGES: usize = 5;
const MAX_PASSAGES: usize = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KnowledgeSearchArgs {
    /// Words to search for.
    query: String,
    /// Knowledge base; required only if there are several.
    base: Option<String>,
    /// Maximum number of passages to show.
    limit: Option<usize>,
    /// Cursor of the previous result, to continue from there.
    cursor: Option<String>,
}

pub(super) fn search() -> FnTool {
    let description = "Searches a knowledge base for passages with the words of a query, best matches first. \
        If there are several bases and none is given, lists them.";
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
            let call = RetrieveCall { base, question: query.clone(), cursor, limit, ..RetrieveCall::default() };
            let page = context.api.knowledge.retrieve(call).await.map_err(to_tool_error)?;
            Ok(ToolOutput::ok(render_passages(&query, &page)))
        },
    );
    search.with_read_only().with_knowledge()
}

/// Returns the only knowledge base, or an error that lists them.
async fn only_base(context: &ToolContext) -> Result<String, ToolError> {
    let mut bases = context.api.knowledge.list().await.map_err(to_tool_error)?;
    match bases.len() {
        0 => Err(ToolError::new("no knowledge base can be listed here; name one as `base`")),
        1 => Ok(bases.remove(0).id),
        _ => {
            let lines: Vec<String> = bases.iter().map(|base| format!("- {}: {}", base.id, base.description)).collect();
            Err(ToolError::new(format!("there are several knowledge bases; name one as `base`:\n{}", lines.join("\n"))))
        }
    }
}

fn render_passages(query: &str, page: &RetrievedPage) -> String {
    let mut text = String::new();
    for passage in &page.passages.items {
        let line = passage.line.map(|line| format!(":{line}")).unwrap_or_default();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "[{}{line}, score {:.2}]\n{}\n\n", passage.source, passage.score, passage.text);
    }
    if text.is_empty() {
        text = format!("nothing found for {query:?}\n\n");
    }
    if let Some(next) = &page.passages.next {
        let _ = writeln!(text, "[more results: repeat the search with cursor {next}]");
    }
    if let Some(skipped) = &page.skipped {
        let _ = writeln!(text, "[not searched: {skipped}]");
    }
    text.trim_end().to_owned()
}
