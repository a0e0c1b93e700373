//! `web.fetch`: a page of the public web as text.

mod address;
mod allowed;
mod body;
mod entities;
mod fetch;
mod readable;
mod tunnel;

use std::sync::Arc;

use capstan_hooks::Secrets;
use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{Content, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

pub use allowed::{Allowed, BadHost};

use super::typed::tool;
use body::Read;
use fetch::{Fetch, SystemNames};

/// How much text is given when nobody says.
const CHARS: usize = 40_000;
/// How much text is given at most.
const MAX_CHARS: usize = 400_000;

/// What the user set for the web.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Hosts that may be reached although they are private.
    pub allow_private: Vec<Allowed>,
    /// A proxy to go through, with `http://`; those of the environment are not used. It must open tunnels (`CONNECT`).
    pub proxy: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The address, with http:// or https://.
    url: String,
    /// How many characters of the text to give at most: 40000 when nobody says.
    max_chars: Option<usize>,
}

pub(super) fn fetch(settings: Settings) -> FnTool {
    let description = "Gets a page of the public web and gives its text, with its links; an image is shown. \
        Private addresses are refused.";
    let fetch = Arc::new(Fetch::new(settings, Arc::new(SystemNames)));
    tool("web.fetch", description, move |arguments: Arguments, context: ToolContext| {
        let fetch = Arc::clone(&fetch);
        async move {
            tokio::select! {
                () = context.cancelled.cancelled() => Err(ToolError::new("cancelled")),
                page = fetch.page(&arguments.url) => {
                    let page = page.map_err(|reason| ToolError::new(format!("{}: {reason}", arguments.url)))?;
                    let chars = arguments.max_chars.unwrap_or(CHARS).min(MAX_CHARS);
                    Ok(output(page, chars, &context.secrets))
                }
            }
        }
    })
}

/// A page as it is given: where it came from, then its text.
fn output(page: fetch::Page, chars: usize, secrets: &Secrets) -> ToolOutput {
    let content = match page.read {
        Read::Image(content) => content,
        Read::Text(mut text) => {
            if page.is_cut {
                // Nobody knows what the rest is: what it ends with may be a part of a secret.
                secrets.mask_piece(&mut text);
                text.push_str("\n[the page is longer than what was read of it]");
            }
            Content::Text(format!("{}\n\n{}", page.url, cut(&text, chars, secrets)))
        }
    };
    match page.problem {
        None => ToolOutput::ok(content),
        Some(problem) => ToolOutput::error(format!("{problem}\n{}", content.text())),
    }
}

fn cut(text: &str, chars: usize, secrets: &Secrets) -> String {
    let shown = secrets.first_chars(text, chars);
    match text[shown.len()..].chars().count() {
        0 => text.to_owned(),
        left_out => format!("{shown}\n[{left_out} characters left out; max_chars gives more]"),
    }
}

#[cfg(test)]
mod tests;
