//! A page of HTML as text, in the form of markdown.
//!
//! One pass over the tags and no tree: a text needs none, no page can make it deep, and the time it takes grows with
//! the length of the page and nothing else.

use reqwest::Url;

use super::entities::decode_entities;

/// What is left out with all that is in it.
const SKIPPED_TAGS: &[&str] =
    &["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"];
/// What begins on a line of its own, with an empty line before it.
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
/// What begins on a line of its own.
const LINE_TAGS: &[&str] = &["br", "tr", "dt", "dd", "figcaption", "summary", "option", "legend", "caption", "li"];

/// The text of a page.
pub(super) fn html_to_markdown(base: &Url, html: &str) -> String {
    let mut writer =
        MarkdownWriter { base, out: String::new(), link: None, open_lists: Vec::new(), pre: 0, needs_space: false };
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

/// A tag with what is needed of it.
struct HtmlTag {
    name: String,
    is_closing: bool,
    href: Option<String>,
    alt: Option<String>,
}

impl HtmlTag {
    /// The tag at the beginning of a text, after its bracket, and what follows it.
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

/// The name and value of the attribute at the beginning of a text, and what follows it.
fn parse_attribute(text: &str) -> (&str, &str, &str) {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/');
    // At least one character is taken, so that there is an end.
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

/// What was written so far, and in what it stands.
struct MarkdownWriter<'a> {
    base: &'a Url,
    out: String,
    /// The link that is open: where it leads, and where its text begins. There is no link in a link.
    link: Option<(Url, usize)>,
    /// Lists that are open: the number of the last item, where they have numbers.
    open_lists: Vec<Option<u32>>,
    pre: usize,
    /// A space is due before the next word.
    needs_space: bool,
}

impl MarkdownWriter<'_> {
    /// Takes a tag; gives what is to be read next.
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
            ("pre", ends) => self.pre(ends),
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

    /// Text between tags.
    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = decode_entities(text);
        if self.pre > 0 {
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

    /// The space that is due, unless a line begins here.
    fn push_pending_space(&mut self) {
        if std::mem::take(&mut self.needs_space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    fn push_raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Begins a new line, with so many line ends before it in all.
    fn start_block(&mut self, ends: usize) {
        self.needs_space = false;
        if self.pre > 0 {
            return;
        }
        let length = self.out.trim_end_matches(' ').len();
        self.out.truncate(length);
        let there = self.out.bytes().rev().take(ends).take_while(|byte| *byte == b'\n').count();
        if !self.out.is_empty() && there < ends {
            self.out.push_str(&"\n".repeat(ends - there));
        }
    }

    fn pre(&mut self, ends: bool) {
        if !ends {
            self.push_raw("```\n");
            self.pre += 1;
        } else if self.pre > 0 {
            self.pre -= 1;
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

    /// Where a link leads, if that is another page.
    fn resolve_link(&self, href: &str) -> Option<Url> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        self.base.join(href).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"))
    }

    fn end_link(&mut self) {
        let Some((url, begins)) = self.link.take() else { return };
        let begins = begins.min(self.out.len());
        if self.out.get(begins..).is_none_or(|text| text.trim().is_empty()) {
            return;
        }
        if self.pre == 0 && !self.out[begins..].contains('\n') {
            self.out.insert(begins, '[');
            self.out.push(']');
        }
        self.out.extend(["(", url.as_str(), ")"]);
    }
}

/// Where an element ends.
fn find_closing_tag(text: &str, name: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find("</") {
        let at = from + found;
        let is_it = text.get(at + 2..at + 2 + name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name));
        if is_it {
            return Some(at);
        }
        from = at + 2;
    }
    None
}

/// What follows an element, its end included.
fn skip_element<'t>(text: &'t str, name: &str) -> &'t str {
    let Some(end) = find_closing_tag(text, name) else { return "" };
    text[end..].split_once('>').map_or("", |(_, rest)| rest)
}
