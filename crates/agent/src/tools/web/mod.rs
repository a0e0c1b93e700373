//! `web.fetch`: a page of the public web as text.

mod allowed_host;
mod entities;
mod fetch;
mod html_text;
mod page_content;
mod proxy_tunnel;
mod public_address;

use std::sync::Arc;

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{Content, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

pub use allowed_host::{AllowedHost, HostParseError};

use super::typed_tool::typed_tool;
use fetch::{PageFetcher, SystemResolver};
use page_content::PageContent;

/// How much text is given when nobody says.
const DEFAULT_PAGE_CHARS: usize = 40_000;
/// How much text is given at most.
const MAX_PAGE_CHARS: usize = 400_000;

/// What the user set for the web.
#[derive(Debug, Clone, Default)]
pub struct WebOptions {
    /// Hosts that may be reached although they are private.
    pub allow_private: Vec<AllowedHost>,
    /// A proxy to go through, with `http://`; those of the environment are not used. It must open tunnels (`CONNECT`).
    pub proxy: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebFetchArgs {
    /// The address, with http:// or https://.
    url: String,
    /// How many characters of the text to give at most: 40000 when nobody says.
    max_chars: Option<usize>,
}

pub(super) fn fetch(settings: WebOptions) -> FnTool {
    let description = "Gets a page of the public web and gives its text, with its links; an image is shown. \
        Private addresses are refused.";
    let fetch = Arc::new(PageFetcher::new(settings, Arc::new(SystemResolver)));
    typed_tool("web.fetch", description, move |arguments: WebFetchArgs, context: ToolContext| {
        let fetch = Arc::clone(&fetch);
        async move {
            tokio::select! {
                () = context.cancel_token.cancelled() => Err(ToolError::new("cancelled")),
                page = fetch.fetch_page(&arguments.url) => {
                    let page = page.map_err(|reason| ToolError::new(format!("{}: {reason}", arguments.url)))?;
                    let chars = arguments.max_chars.unwrap_or(DEFAULT_PAGE_CHARS).min(MAX_PAGE_CHARS);
                    Ok(render_page(page, chars, &context.secrets))
                }
            }
        }
    })
}

/// A page as it is given: where it came from, then its text.
fn render_page(page: fetch::FetchedPage, chars: usize, secrets: &SecretMasker) -> ToolOutput {
    let content = match page.content {
        PageContent::Image(content) => content,
        PageContent::Text(mut text) => {
            if page.is_truncated {
                // Nobody knows what the rest is: what it ends with may be a part of a secret.
                secrets.mask_fragment(&mut text);
                text.push_str("\n[the page is longer than what was read of it]");
            }
            Content::Text(format!("{}\n\n{}", page.url, truncate_text(&text, chars, secrets)))
        }
    };
    match page.problem {
        None => ToolOutput::ok(content),
        Some(problem) => ToolOutput::error(format!("{problem}\n{}", content.text())),
    }
}

fn truncate_text(text: &str, chars: usize, secrets: &SecretMasker) -> String {
    let shown = secrets.first_chars(text, chars);
    match text[shown.len()..].chars().count() {
        0 => text.to_owned(),
        left_out => format!("{shown}\n[{left_out} characters left out; max_chars gives more]"),
    }
}

#[cfg(test)]
mod tests;
