//! A page of HTML as text, in the form of markdown.
//!
//! One pass over the tags and no tree: a text needs none, no page can make it deep, and the time it takes grows with
//! the length of the page and nothing else.

use reqwest::Url;

use super::entities::decode;

/// What is left out with all that is in it.
const LEFT_OUT: &[&str] = &["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"];
/// What begins on a line of its own, with an empty line before it.
const PARAGRAPHS: &[&str] = &[
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
const LINES: &[&str] = &["br", "tr", "dt", "dd", "figcaption", "summary", "option", "legend", "caption", "li"];

/// The text of a page.
pub(super) fn text(base: &Url, html: &str) -> String {
    let mut writer = Writer { base, out: String::new(), link: None, lists: Vec::new(), pre: 0, space: false };
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        writer.words(before);
        rest = if let Some(comment) = after.strip_prefix("!--") {
            comment.split_once("-->").map_or("", |(_, rest)| rest)
        } else if after.starts_with(['!', '?']) {
            after.split_once('>').map_or("", |(_, rest)| rest)
        } else if after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') {
            let (tag, rest) = Tag::parse(after);
            writer.tag(&tag, rest)
        } else {
            writer.words("<");
            after
        };
    }
    writer.words(rest);
    writer.out.trim().to_owned()
}

/// A tag with what is needed of it.
struct Tag {
    name: String,
    ends: bool,
    href: Option<String>,
    alt: Option<String>,
}

impl Tag {
    /// The tag at the beginning of a text, after its bracket, and what follows it.
    fn parse(text: &str) -> (Self, &str) {
        let (ends, text) = text.strip_prefix('/').map_or((false, text), |rest| (true, rest));
        let end = text.find(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/')).unwrap_or(text.len());
        let mut tag = Self { name: text[..end].to_ascii_lowercase(), ends, href: None, alt: None };
        let mut rest = &text[end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                return (tag, after);
            }
            if rest.is_empty() {
                return (tag, rest);
            }
            let (name, value, after) = attribute(rest);
            match name {
                "href" => tag.href = Some(decode(value)),
                "alt" => tag.alt = Some(decode(value)),
                _ => {}
            }
            rest = after;
        }
    }
}

/// The name and value of the attribute at the beginning of a text, and what follows it.
fn attribute(text: &str) -> (&str, &str, &str) {
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
struct Writer<'a> {
    base: &'a Url,
    out: String,
    /// The link that is open: where it leads, and where its text begins. There is no link in a link.
    link: Option<(Url, usize)>,
    /// Lists that are open: the number of the last item, where they have numbers.
    lists: Vec<Option<u32>>,
    pre: usize,
    /// A space is due before the next word.
    space: bool,
}

impl Writer<'_> {
    /// Takes a tag; gives what is to be read next.
    fn tag<'t>(&mut self, tag: &Tag, rest: &'t str) -> &'t str {
        let name = tag.name.as_str();
        if LEFT_OUT.contains(&name) && !tag.ends {
            return after_end(rest, name);
        }
        if name == "title" && !tag.ends {
            let end = find_end(rest, name).unwrap_or(rest.len());
            self.block(2);
            self.words(&rest[..end]);
            self.block(2);
            return after_end(rest, name);
        }
        if PARAGRAPHS.contains(&name) {
            let is_inner_list = matches!(name, "ul" | "ol") && self.lists.len() > usize::from(tag.ends);
            self.block(if is_inner_list { 1 } else { 2 });
        } else if LINES.contains(&name) && !(tag.ends && name == "br") {
            self.block(1);
        }
        match (name, tag.ends) {
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                let level = name.as_bytes()[1] - b'0';
                self.raw(&"#".repeat(usize::from(level)));
                self.space = true;
            }
            ("hr", false) => self.raw("---\n\n"),
            ("pre", ends) => self.pre(ends),
            ("ul", false) => self.lists.push(None),
            ("ol", false) => self.lists.push(Some(0)),
            ("ul" | "ol", true) => drop(self.lists.pop()),
            ("li", false) => self.item(),
            ("td" | "th", true) => {
                self.raw(" |");
                self.space = true;
            }
            ("a", false) => {
                self.begin_word();
                let url = tag.href.as_deref().and_then(|href| self.leads_to(href));
                self.link = url.map(|url| (url, self.out.len()));
            }
            ("a", true) => self.end_link(),
            ("img", false) => {
                if let Some(alt) = tag.alt.as_deref().filter(|alt| !alt.trim().is_empty()) {
                    self.words(&format!("[image: {}]", alt.trim()));
                }
            }
            _ => {}
        }
        rest
    }

    /// Text between tags.
    fn words(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = decode(text);
        if self.pre > 0 {
            self.out.push_str(&text);
            return;
        }
        for character in text.chars() {
            if character.is_whitespace() {
                self.space = true;
            } else {
                self.begin_word();
                self.out.push(character);
            }
        }
    }

    /// The space that is due, unless a line begins here.
    fn begin_word(&mut self) {
        if std::mem::take(&mut self.space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Begins a new line, with so many line ends before it in all.
    fn block(&mut self, ends: usize) {
        self.space = false;
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
            self.raw("```\n");
            self.pre += 1;
        } else if self.pre > 0 {
            self.pre -= 1;
            if !self.out.ends_with('\n') {
                self.raw("\n");
            }
            self.raw("```\n\n");
        }
    }

    fn item(&mut self) {
        let depth = self.lists.len().saturating_sub(1);
        self.out.push_str(&"  ".repeat(depth.min(10)));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                let number = format!("{number}.");
                self.raw(&number);
            }
            _ => self.raw("-"),
        }
        self.space = true;
    }

    /// Where a link leads, if that is another page.
    fn leads_to(&self, href: &str) -> Option<Url> {
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
fn find_end(text: &str, name: &str) -> Option<usize> {
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
fn after_end<'t>(text: &'t str, name: &str) -> &'t str {
    let Some(end) = find_end(text, name) else { return "" };
    text[end..].split_once('>').map_or("", |(_, rest)| rest)
}
