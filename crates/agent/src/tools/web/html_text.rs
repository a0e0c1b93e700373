//! Conversion of HTML to Markdown text.
//!
//! One pass over the tags, without a tree: deeply nested pages cannot exhaust the stack, and the time is linear in the
//! length of the page.

use reqwest::Url;

use super::entities::decode_entities;

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
];
/// Elements that start on a new line.
const LINE_TAGS: &[&str] = &["br", "tr", "dt", "dd", "figcaption", "summary", "option", "legend", "caption", "li"];

/// Converts a page to text.
pub(super) fn html_to_markdown(base: &Url, html: &str) -> String {
    let mut writer = MarkdownWriter {
        base,
        out: String::new(),
        link: None,
        open_lists: Vec::new(),
        pre_depth: 0,
        needs_space: false,
    };
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        writer.push_text(before);
        rest = if let Some(comment) = after.strip_prefix("!--") {
            comment.split_once("-->").map_or("", |(_, rest)| rest)
        } else if after.starts_with(['!', '?']) {
            after.split_once('>').map_or("", |(_, rest)| rest)
        } else if after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') {
            let (tag, rest) = HtmlTag::parse(after);
            writer.handle_tag(&tag, rest)
        } else {
            writer.push_text("<");
            after
        };
    }
    writer.push_text(rest);
    writer.out.trim().to_owned()
}

/// Tag with the attributes that matter.
struct HtmlTag {
    name: String,
    is_closing: bool,
    href: Option<String>,
    alt: Option<String>,
}

impl HtmlTag {
    /// Parses the tag at the beginning of `text`, after its bracket; returns the rest, too.
    fn parse(text: &str) -> (Self, &str) {
        let (ends, text) = text.strip_prefix('/').map_or((false, text), |rest| (true, rest));
        let end = text.find(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/')).unwrap_or(text.len());
        let mut tag = Self { name: text[..end].to_ascii_lowercase(), is_closing: ends, href: None, alt: None };
        let mut rest = &text[end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                return (tag, after);
            }
            if rest.is_empty() {
                return (tag, rest);
            }
            let (name, value, after) = parse_attribute(rest);
            match name {
                "href" => tag.href = Some(decode_entities(value)),
                "alt" => tag.alt = Some(decode_entities(value)),
                _ => {}
            }
            rest = after;
        }
    }
}

/// Parses the attribute at the beginning of `text`: name, value and rest.
fn parse_attribute(text: &str) -> (&str, &str, &str) {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/');
    // Consuming at least one character guarantees progress.
    let first = text.chars().next().map_or(0, char::len_utf8);
    let end = text[first..].find(is_end).map_or(text.len(), |end| first + end);
    let (name, rest) = text.split_at(end);
    let Some(rest) = rest.trim_start().strip_prefix('=') else { return (name, "", rest) };
    let rest = rest.trim_start();
    for quote in ['"', '\''] {
        if let Some(quoted) = rest.strip_prefix(quote) {
            let (value, rest) = quoted.split_once(quote).unwrap_or((quoted, ""));
            return (name, value, rest);
        }
    }
    let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(rest.len());
    (name, &rest[..end], &rest[end..])
}

/// Output and the elements that are open.
struct MarkdownWriter<'a> {
    base: &'a Url,
    out: String,
    /// Open link: its target and the start of its text. Links do not nest.
    link: Option<(Url, usize)>,
    /// Open lists: number of the last item, for ordered lists.
    open_lists: Vec<Option<u32>>,
    pre_depth: usize,
    /// A space is pending before the next word.
    needs_space: bool,
}

impl MarkdownWriter<'_> {
    /// Handles a tag; returns the text to continue with.
    fn handle_tag<'t>(&mut self, tag: &HtmlTag, rest: &'t str) -> &'t str {
        let name = tag.name.as_str();
        if SKIPPED_TAGS.contains(&name) && !tag.is_closing {
            return skip_element(rest, name);
        }
        if name == "title" && !tag.is_closing {
            let end = find_closing_tag(rest, name).unwrap_or(rest.len());
            self.start_block(2);
            self.push_text(&rest[..end]);
            self.start_block(2);
            return skip_element(rest, name);
        }
        if PARAGRAPH_TAGS.contains(&name) {
            let is_inner_list = matches!(name, "ul" | "ol") && self.open_lists.len() > usize::from(tag.is_closing);
            self.start_block(if is_inner_list { 1 } else { 2 });
        } else if LINE_TAGS.contains(&name) && !(tag.is_closing && name == "br") {
            self.start_block(1);
        }
        match (name, tag.is_closing) {
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                let level = name.as_bytes()[1] - b'0';
                self.push_raw(&"#".repeat(usize::from(level)));
                self.needs_space = true;
            }
            ("hr", false) => self.push_raw("---\n\n"),
            ("pre", is_closing) => self.toggle_pre(is_closing),
            ("ul", false) => self.open_lists.push(None),
            ("ol", false) => self.open_lists.push(Some(0)),
            ("ul" | "ol", true) => drop(self.open_lists.pop()),
            ("li", false) => self.start_item(),
            ("td" | "th", true) => {
                self.push_raw(" |");
                self.needs_space = true;
            }
            ("a", false) => {
                self.push_pending_space();
                let url = tag.href.as_deref().and_then(|href| self.resolve_link(href));
                self.link = url.map(|url| (url, self.out.len()));
            }
            ("a", true) => self.end_link(),
            ("img", false) => {
                if let Some(alt) = tag.alt.as_deref().filter(|alt| !alt.trim().is_empty()) {
                    self.push_text(&format!("[image: {}]", alt.trim()));
                }
            }
            _ => {}
        }
        rest
    }

    /// Appends text between tags.
    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = decode_entities(text);
        if self.pre_depth > 0 {
            self.out.push_str(&text);
            return;
        }
        for character in text.chars() {
            if character.is_whitespace() {
                self.needs_space = true;
            } else {
                self.push_pending_space();
                self.out.push(character);
            }
        }
    }

    /// Appends the pending space, except at the start of a line.
    fn push_pending_space(&mut self) {
        if std::mem::take(&mut self.needs_space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    fn push_raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Starts a new line, preceded by `ends` line ends.
    fn start_block(&mut self, ends: usize) {
        self.needs_space = false;
        if self.pre_depth > 0 {
            return;
        }
        let length = self.out.trim_end_matches(' ').len();
        self.out.truncate(length);
        let existing = self.out.bytes().rev().take(ends).take_while(|byte| *byte == b'\n').count();
        if !self.out.is_empty() && existing < ends {
            self.out.push_str(&"\n".repeat(ends - existing));
        }
    }

    fn toggle_pre(&mut self, is_closing: bool) {
        if !is_closing {
            self.push_raw("```\n");
            self.pre_depth += 1;
        } else if self.pre_depth > 0 {
            self.pre_depth -= 1;
            if !self.out.ends_with('\n') {
                self.push_raw("\n");
            }
            self.push_raw("```\n\n");
        }
    }

    fn start_item(&mut self) {
        let depth = self.open_lists.len().saturating_sub(1);
        self.out.push_str(&"  ".repeat(depth.min(10)));
        match self.open_lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                let number = format!("{number}.");
                self.push_raw(&number);
            }
            _ => self.push_raw("-"),
        }
        self.needs_space = true;
    }

    /// Resolves the target of a link, if it is another page.
    fn resolve_link(&self, href: &str) -> Option<Url> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        self.base.join(href).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"))
    }

    fn end_link(&mut self) {
        let Some((url, start)) = self.link.take() else { return };
        let start = start.min(self.out.len());
        if self.out.get(start..).is_none_or(|text| text.trim().is_empty()) {
            return;
        }
        if self.pre_depth == 0 && !self.out[start..].contains('\n') {
            self.out.insert(start, '[');
            self.out.push(']');
        }
        self.out.extend(["(", url.as_str(), ")"]);
    }
}

/// Finds the end of an element.
fn find_closing_tag(text: &str, name: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find("</") {
        let at = from + found;
        let matches_name = text.get(at + 2..at + 2 + name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name));
        if matches_name {
            return Some(at);
        }
        from = at + 2;
    }
    None
}

/// Returns the text after an element and its closing tag.
fn skip_element<'t>(text: &'t str, name: &str) -> &'t str {
    let Some(end) = find_closing_tag(text, name) else { return "" };
    text[end..].split_once('>').map_or("", |(_, rest)| rest)
}
