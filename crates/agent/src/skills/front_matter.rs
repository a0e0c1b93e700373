//! The head of a `SKILL.md`: `name` and `description` in a small part of YAML.
//!
//! What people write there is `key: value`, quoted or not, over several lines or as a block. That is read here; keys
//! that mean nothing to us are passed over with whatever they hold.

/// The longest name.
const MAX_SKILL_NAME_LEN: usize = 64;
/// What begins something else than a text in YAML.
const YAML_NON_TEXT_STARTS: [char; 10] = ['[', ']', '{', '}', '&', '*', '!', '%', '@', '`'];
/// The longest description.
const MAX_SKILL_DESCRIPTION_CHARS: usize = 1024;

/// A `SKILL.md`, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillManifest {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) body: String,
}

/// Takes a `SKILL.md` apart; says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<SkillManifest, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Err("it does not begin with a head between two lines of ---".to_owned());
    }
    let mut head = Vec::new();
    loop {
        match lines.next() {
            None => return Err("the head has no end: a second line of --- is missing".to_owned()),
            Some(line) if line.trim_end() == "---" => break,
            Some(line) => head.push(line),
        }
    }
    let body = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    let (mut name, mut description) = (None, None);
    for (key, value) in top_level_entries(&head)? {
        let slot = match key {
            "name" => &mut name,
            "description" => &mut description,
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err(format!("the head has {key} twice"));
        }
    }
    let name = name.ok_or("the head has no name")?;
    check_name(&name)?;
    let description = description.filter(|text| !text.is_empty()).ok_or("the head has no description")?;
    if description.chars().count() > MAX_SKILL_DESCRIPTION_CHARS {
        return Err(format!("the description has more than {MAX_SKILL_DESCRIPTION_CHARS} characters"));
    }
    if body.is_empty() {
        return Err("there are no instructions after the head".to_owned());
    }
    Ok(SkillManifest { name, description, body })
}

fn check_name(name: &str) -> Result<(), String> {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if name.len() <= MAX_SKILL_NAME_LEN && name.split('-').all(is_word) {
        return Ok(());
    }
    Err(format!("the name {name:?} must be small letters, digits and single hyphens, at most {MAX_SKILL_NAME_LEN}"))
}

/// The keys of the outermost level with their values as text.
fn top_level_entries<'a>(lines: &[&'a str]) -> Result<Vec<(&'a str, String)>, String> {
    let mut entries = Vec::new();
    let mut rest = lines;
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.starts_with([' ', '\t', '-'])) else {
            return Err(format!("the head has a line that is no key: value: {:?}", excerpt(line)));
        };
        let is_inner = |line: &&&str| line.trim().is_empty() || line.starts_with([' ', '\t', '-']);
        let inner = rest.iter().take_while(is_inner).count();
        let (block, after) = rest.split_at(inner);
        rest = after;
        let (key, value) = (key.trim_end(), value.trim());
        if ["name", "description"].contains(&key) && value.starts_with(YAML_NON_TEXT_STARTS) {
            return Err(format!("the {key} is no text: put {:?} into quotes", excerpt(value)));
        }
        entries.push((key, parse_scalar(value, block)?));
    }
    Ok(entries)
}

/// A value that begins on the line of its key and goes on in the lines below it.
fn parse_scalar(first: &str, block: &[&str]) -> Result<String, String> {
    let lines = block.iter().map(|line| line.trim());
    if let Some(style) = first.chars().next().filter(|style| matches!(style, '|' | '>')) {
        let between = if style == '|' { "\n" } else { " " };
        return Ok(lines.collect::<Vec<_>>().join(between).trim().to_owned());
    }
    let whole = std::iter::once(first).chain(lines.filter(|line| !line.is_empty())).collect::<Vec<_>>().join(" ");
    let whole = whole.trim();
    if let Some(quoted) = whole.strip_prefix('"') {
        return parse_double_quoted(quoted).ok_or_else(|| format!("the quotes of {:?} do not match", excerpt(whole)));
    }
    if let Some(quoted) = whole.strip_prefix('\'') {
        let inner = quoted.trim_end().strip_suffix('\'');
        return inner.map(|text| text.replace("''", "'")).ok_or_else(|| "the quotes do not match".to_owned());
    }
    Ok(whole.split(" #").next().unwrap_or_default().trim_end().to_owned())
}

fn parse_double_quoted(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(value),
            '\\' => match characters.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn parse_description(head: &str) -> Result<String, String> {
        parse(&format!("---\nname: a-skill\n{head}\n---\nDo it.\n")).map(|parsed| parsed.description)
    }

    #[test]
    fn a05_a_head_is_read_as_people_write_it() {
        let text = "\u{feff}---\r\n# a comment\r\nname: a-skill\r\ndescription: Does it: well. # really\r\n---\r\n\r\n# Body\r\n";
        let parsed = parse(text).unwrap();
        assert_eq!((parsed.name.as_str(), parsed.body.as_str()), ("a-skill", "# Body"));
        assert_eq!(parsed.description, "Does it: well.");
        assert_eq!(parse_description("description: \"Says \\\"hi\\\": now\"").unwrap(), "Says \"hi\": now");
        assert_eq!(parse_description("description: 'It''s # fine'").unwrap(), "It's # fine");
        assert_eq!(parse_description("description: >-\n  One\n  two").unwrap(), "One two");
        assert_eq!(parse_description("description: |\n  One\n  two").unwrap(), "One\ntwo");
        assert_eq!(parse_description("description: One\n  two").unwrap(), "One two");
        let others =
            "license: MIT\nmetadata:\n  name: other\n  tags:\n    - x\nallowed-tools:\n- bash\ndescription: Fine";
        assert_eq!(parse_description(others).unwrap(), "Fine");
    }

    #[test]
    fn a05_what_is_wrong_with_a_head_is_said() {
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(wrong("# no head").contains("does not begin"));
        assert!(wrong("---\nname: x\n").contains("no end"));
        assert!(wrong("---\ndescription: x\n---\nx").contains("no name"));
        assert!(wrong("---\nname: x\n---\nx").contains("no description"));
        assert!(wrong("---\nname: x\ndescription:\n---\nx").contains("no description"));
        assert!(wrong("---\nname: x\ndescription: y\n---\n").contains("no instructions"));
        assert!(wrong("---\nname: x\nname: y\n---\nx").contains("twice"));
        assert!(wrong("---\nwhat is this\n---\nx").contains("no key: value"));
        assert!(parse_description("description: \"open").unwrap_err().contains("quotes"));
        for no_text in ["[a: b", "[a, b]", "{a: b}", "*there", "!tag x", "@at"] {
            let wrong = parse_description(&format!("description: {no_text}")).unwrap_err();
            assert!(wrong.contains("the description is no text"), "{wrong}");
        }
        assert_eq!(parse_description("allowed-tools: [a, b]\ndescription: '[x] is fine'").unwrap(), "[x] is fine");
        assert!(parse_description(&format!("description: {}", "x".repeat(1025))).unwrap_err().contains("1024"));
        for name in ["A", "a_b", "-a", "a-", "a--b", "../x", "a b", "é", &"x".repeat(65)] {
            let text = format!("---\nname: {name}\ndescription: y\n---\nx");
            assert!(wrong(&text).contains("small letters"), "{name}");
        }
    }
}
