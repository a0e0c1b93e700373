//! Conversion of HTML to Markdown text.
//!
//! One pass over the tokens, without a tree: deeply nested pages cannot exhaust the stack, the time is linear in the
//! length of the page, and the length of the text is limited.

use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};
use reqwest::Url;

use super::markdown_writer::MarkdownWriter;

/// Elements that are dropped with their content.
const SKIPPED_TAGS: &[&str] =
    &["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"];
/// Elements that start on a new line after an empty line.
const PARAGRAPH_TAGS: &[&str] = &[
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "nav",
    "aside",
    "ul",
    "ol",
    "dl",
    "table",
    "blockquote",
    "figure",
    "form",
    "fieldset",
    "details",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "pre",
    "hr",
    "address",
    "title",
];
/// Elements that start on a new line.
const LINE_TAGS: &[&str] = &["br", "tr", "dt", "dd", "figcaption", "summary", "option", "legend", "caption", "li"];

/// Maximum length of a link target; text with a longer one is written without its target.
const MAX_LINK_BYTES: usize = 2048;

/// Text of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MarkdownText {
    /// Markdown.
    pub(super) text: String,
    /// The page has more text than the maximum length.
    pub(super) is_truncated: bool,
}

/// Converts a page to a text of about `max_bytes` at most; `base` resolves its links.
pub(super) fn html_to_markdown(base: &Url, html: &str, max_bytes: usize) -> MarkdownText {
    let mut emitter = DefaultEmitter::default();
    // The content of elements such as script and title is not markup.
    emitter.naively_switch_states(true);
    let mut converter = HtmlConverter { base: link_base(base), writer: MarkdownWriter::new(max_bytes), skipped: None };
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        converter.handle_token(&token);
        if converter.writer.is_full() {
            break;
        }
    }
    let is_truncated = converter.writer.is_full();
    MarkdownText { text: converter.writer.finish(), is_truncated }
}

/// Returns the part of a page's URL that relative links depend on, unless it is too long to be part of a target.
fn link_base(url: &Url) -> Option<Url> {
    let mut base = url.clone();
    base.set_query(None);
    Some(base).filter(|base| base.as_str().len() <= MAX_LINK_BYTES)
}

/// Conversion of one page.
struct HtmlConverter {
    /// Base of relative links; without it they have no target.
    base: Option<Url>,
    writer: MarkdownWriter,
    /// Element that is being dropped.
    skipped: Option<SkippedElement>,
}

/// Dropped element with the number of open elements of the same name.
struct SkippedElement {
    name: String,
    open: usize,
}

impl HtmlConverter {
    fn handle_token(&mut self, token: &Token<()>) {
        match token {
            Token::StartTag(tag) => self.start_element(tag),
            Token::EndTag(tag) => self.end_element(&text_of(&tag.name)),
            Token::String(text) if self.skipped.is_none() => self.writer.push_text(&text_of(text)),
            Token::String(_) | Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }

    fn start_element(&mut self, tag: &StartTag<()>) {
        let name = text_of(&tag.name);
        let name = name.as_ref();
        if let Some(skipped) = &mut self.skipped {
            skipped.open += usize::from(skipped.name == name);
            return;
        }
        if SKIPPED_TAGS.contains(&name) {
            if !tag.self_closing || name != "svg" {
                self.skipped = Some(SkippedElement { name: name.to_owned(), open: 1 });
            }
            return;
        }
        self.start_line(name, self.writer.list_depth() > 0);
        let attribute = |name: &str| tag.attributes.get(name.as_bytes()).map(|value| text_of(value));
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.writer.start_heading(name.as_bytes()[1] - b'0'),
            "hr" => self.writer.push_rule(),
            "pre" => self.writer.start_pre(),
            "blockquote" => self.writer.start_quote(),
            "ul" => self.writer.start_list(None),
            "ol" => {
                let start = attribute("start").and_then(|start| start.trim().parse().ok());
                self.writer.start_list(Some(start.unwrap_or(1)));
            }
            "li" => self.writer.start_item(),
            "a" => {
                let url = attribute("href").and_then(|href| self.resolve_link(&href));
                self.writer.start_link(url);
            }
            "img" => {
                if let Some(alt) = attribute("alt").filter(|alt| !alt.trim().is_empty()) {
                    self.writer.push_text(&format!("[image: {}]", alt.trim()));
                }
            }
            _ => {}
        }
    }

    fn end_element(&mut self, name: &str) {
        if let Some(skipped) = &mut self.skipped {
            skipped.open -= usize::from(skipped.name == name);
            if skipped.open == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            "br" => return,
            "pre" => self.writer.end_pre(),
            "td" | "th" => self.writer.end_cell(),
            "a" => self.writer.end_link(),
            _ => {}
        }
        self.start_line(name, self.writer.list_depth() > 1);
        match name {
            "blockquote" => self.writer.end_quote(),
            "ul" | "ol" => self.writer.end_list(),
            _ => {}
        }
    }

    /// Starts the line or paragraph that an element begins or ends; a list within a list starts no paragraph.
    fn start_line(&mut self, name: &str, is_inner: bool) {
        if matches!(name, "ul" | "ol") && is_inner {
            self.writer.start_block(1);
        } else if PARAGRAPH_TAGS.contains(&name) {
            self.writer.start_block(2);
        } else if LINE_TAGS.contains(&name) {
            self.writer.break_line(1);
        }
    }

    /// Resolves the target of a link, if it is another page.
    fn resolve_link(&self, href: &str) -> Option<Url> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = Url::options().base_url(self.base.as_ref()).parse(href).ok()?;
        let is_page = matches!(url.scheme(), "http" | "https" | "mailto");
        Some(url).filter(|url| is_page && url.as_str().len() <= MAX_LINK_BYTES)
    }
}

fn text_of(text: &HtmlString) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}
