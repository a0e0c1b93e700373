//! `web.fetch`: fetches a page of the public web as text.

mod allowed_host;
mod fetch;
mod html_text;
mod markdown_writer;
mod page_content;
mod proxy_tunnel;

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

/// Number of characters returned by default.
const DEFAULT_PAGE_CHARS: usize = 40_000;
/// Maximum number of characters returned.
const MAX_PAGE_CHARS: usize = 400_000;

/// User settings for `web.fetch`.
#[derive(Debug, Clone, Default)]
pub struct WebOptions {
    /// Private hosts that may be reached.
    pub allow_private: Vec<AllowedHost>,
    /// HTTP proxy, which must support `CONNECT`. Proxies of the environment are not used.
    pub proxy: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebFetchArgs {
    /// URL with http:// or https://.
    url: String,
    /// Maximum number of characters to return: 40000 by default.
    max_chars: Option<usize>,
}

pub(super) fn fetch(options: WebOptions) -> FnTool {
    let description = "Fetches a page of the public web and returns its text with links; an image is shown. \
        Private addresses are refused.";
    let fetcher = Arc::new(PageFetcher::new(options, Arc::new(SystemResolver)));
    typed_tool("web.fetch", description, move |arguments: WebFetchArgs, context: ToolContext| {
        let fetcher = Arc::clone(&fetcher);
        async move {
            tokio::select! {
                () = context.cancel_token.cancelled() => Err(ToolError::new("cancelled")),
                page = fetcher.fetch_page(&arguments.url) => {
                    let page = page.map_err(|reason| ToolError::new(format!("{}: {reason}", arguments.url)))?;
                    let chars = arguments.max_chars.unwrap_or(DEFAULT_PAGE_CHARS).min(MAX_PAGE_CHARS);
                    Ok(render_page(page, chars, &context.secrets))
                }
            }
        }
    })
}

/// Renders a page: its URL, then its text.
fn render_page(page: fetch::FetchedPage, chars: usize, secrets: &SecretMasker) -> ToolOutput {
    let content = match page.content {
        PageContent::Image(content) => content,
        PageContent::Text { mut text, is_truncated } => {
            if is_truncated {
                // The text was cut at an arbitrary position and may end with part of a secret.
                secrets.mask_fragment(&mut text);
                text.push_str("\n[the page is longer than the part that was read]");
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
        omitted => format!("{shown}\n[{omitted} characters left out; raise max_chars for more]"),
    }
}

#[cfg(test)]
mod tests;
