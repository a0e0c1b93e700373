//! Front matter of a `SKILL.md`: `name` and `description` in a subset of YAML.
//!
//! Accepted are `key: value` pairs, quoted or not, on several lines or as a block. Unknown keys are ignored with their
//! values.

/// Maximum length of a skill name.
const MAX_SKILL_NAME_LEN: usize = 64;
/// Characters that start something other than a plain scalar in YAML.
const YAML_NON_TEXT_STARTS: [char; 10] = ['[', ']', '{', '}', '&', '*', '!', '%', '@', '`'];
/// Maximum length of a description.
const MAX_SKILL_DESCRIPTION_CHARS: usize = 1024;

/// Parsed `SKILL.md`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillManifest {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) body: String,
}

/// Parses a `SKILL.md`; the error names what is wrong with it.
pub(super) fn parse(text: &str) -> Result<SkillManifest, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Err("the file does not start with front matter between two lines of ---".to_owned());
    }
    let mut head = Vec::new();
    loop {
        match lines.next() {
            None => return Err("the front matter is not closed: a second line of --- is missing".to_owned()),
            Some(line) if line.trim_end() == "---" => break,
            Some(line) => head.push(line),
        }
    }
    let body = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    let (mut name, mut description) = (None, None);
    for (key, value) in top_level_entries(&head)? {
        let target = match key {
            "name" => &mut name,
            "description" => &mut description,
            _ => continue,
        };
        if target.replace(value).is_some() {
            return Err(format!("the front matter has {key} twice"));
        }
    }
    let name = name.ok_or("the front matter has no name")?;
    check_name(&name)?;
    let description = description.filter(|text| !text.is_empty()).ok_or("the front matter has no description")?;
    if description.chars().count() > MAX_SKILL_DESCRIPTION_CHARS {
        return Err(format!("the description has more than {MAX_SKILL_DESCRIPTION_CHARS} characters"));
    }
    if body.is_empty() {
        return Err("there are no instructions after the front matter".to_owned());
    }
    Ok(SkillManifest { name, description, body })
}

fn check_name(name: &str) -> Result<(), String> {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if name.len() <= MAX_SKILL_NAME_LEN && name.split('-').all(is_word) {
        return Ok(());
    }
    Err(format!(
        "invalid name {name:?}: use lower-case letters, digits and single hyphens, at most {MAX_SKILL_NAME_LEN}"
    ))
}

/// Returns the top-level keys with their values as text.
fn top_level_entries<'a>(lines: &[&'a str]) -> Result<Vec<(&'a str, String)>, String> {
    let mut entries = Vec::new();
    let mut rest = lines;
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.starts_with([' ', '\t', '-'])) else {
            return Err(format!("the front matter has a line that is not key: value: {:?}", excerpt(line)));
        };
        let is_inner = |line: &&&str| line.trim().is_empty() || line.starts_with([' ', '\t', '-']);
        let inner = rest.iter().take_while(is_inner).count();
        let (block, after) = rest.split_at(inner);
        rest = after;
        let (key, value) = (key.trim_end(), value.trim());
        if ["name", "description"].contains(&key) && value.starts_with(YAML_NON_TEXT_STARTS) {
            return Err(format!("the {key} is not text: put {:?} into quotes", excerpt(value)));
        }
        entries.push((key, parse_scalar(value, block)?));
    }
    Ok(entries)
}

/// Parses a value that starts on the line of its key and may continue on the lines below.
fn parse_scalar(first: &str, block: &[&str]) -> Result<String, String> {
    let lines = block.iter().map(|line| line.trim());
    if let Some(style) = first.chars().next().filter(|style| matches!(style, '|' | '>')) {
        let between = if style == '|' { "\n" } else { " " };
        return Ok(lines.collect::<Vec<_>>().join(between).trim().to_owned());
    }
    let joined = std::iter::once(first).chain(lines.filter(|line| !line.is_empty())).collect::<Vec<_>>().join(" ");
    let joined = joined.trim();
    if let Some(quoted) = joined.strip_prefix('"') {
        return parse_double_quoted(quoted).ok_or_else(|| format!("the quotes of {:?} do not match", excerpt(joined)));
    }
    if let Some(quoted) = joined.strip_prefix('\'') {
        let inner = quoted.trim_end().strip_suffix('\'');
        return inner.map(|text| text.replace("''", "'")).ok_or_else(|| "the quotes do not match".to_owned());
    }
    Ok(joined.split(" #").next().unwrap_or_default().trim_end().to_owned())
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
    fn a05_front_matter_accepts_the_common_notations() {
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
    fn a05_invalid_front_matter_is_reported_with_the_reason() {
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(wrong("# no front matter").contains("does not start"));
        assert!(wrong("---\nname: x\n").contains("not closed"));
        assert!(wrong("---\ndescription: x\n---\nx").contains("no name"));
        assert!(wrong("---\nname: x\n---\nx").contains("no description"));
        assert!(wrong("---\nname: x\ndescription:\n---\nx").contains("no description"));
        assert!(wrong("---\nname: x\ndescription: y\n---\n").contains("no instructions"));
        assert!(wrong("---\nname: x\nname: y\n---\nx").contains("twice"));
        assert!(wrong("---\nwhat is this\n---\nx").contains("not key: value"));
        assert!(parse_description("description: \"open").unwrap_err().contains("quotes"));
        for not_text in ["[a: b", "[a, b]", "{a: b}", "*there", "!tag x", "@at"] {
            let wrong = parse_description(&format!("description: {not_text}")).unwrap_err();
            assert!(wrong.contains("the description is not text"), "{wrong}");
        }
        assert_eq!(parse_description("allowed-tools: [a, b]\ndescription: '[x] is fine'").unwrap(), "[x] is fine");
        assert!(parse_description(&format!("description: {}", "x".repeat(1025))).unwrap_err().contains("1024"));
        for name in ["A", "a_b", "-a", "a-", "a--b", "../x", "a b", "é", &"x".repeat(65)] {
            let text = format!("---\nname: {name}\ndescription: y\n---\nx");
            assert!(wrong(&text).contains("lower-case letters"), "{name}");
        }
    }

    /// Notations and mistakes with the result of each, as `NAME: DESCRIPTION` or `error: REASON`.
    const FRONT_MATTER_RESULTS: &[(&str, &str)] = &[
        ("name: s1\ndescription: Plain text", "s1: Plain text"),
        ("\"name\": s2\n'description': \"Quoted keys\"", "error: the front matter has no name"),
        ("{name: s3, description: Flow mapping}", "error: the front matter has no name"),
        ("name: s4\ndescription: Use it when: always # why not", "s4: Use it when: always"),
        ("name: s5\ndescription: >-\n  One\n  two\n\n  three", "s5: One two  three"),
        ("name: s6\ndescription: |\n  One\n    two", "s6: One\ntwo"),
        ("name: s7\ndescription: One\n  two # three", "s7: One two"),
        ("name: 123\ndescription: 4.50", "123: 4.50"),
        (
            "x: &text Shared\nname: s9\ndescription: *text",
            "error: the description is not text: put \"*text\" into quotes",
        ),
        ("name: s10\ndescription: \"Tab\\there, caf\\u00e9\"", "s10: Tab\there, cafu00e9"),
        (
            "name: s11\ndescription: !note Tagged",
            "error: the description is not text: put \"!note Tagged\" into quotes",
        ),
        (
            "name: s12\nmetadata:\n  name: other\n  tags: [a, {b: c}]\nallowed-tools:\n- bash\ndescription: Fine",
            "s12: Fine",
        ),
        ("name: s13\ndescription: It's a \"test\": really", "s13: It's a \"test\": really"),
        ("name: s14\ndescription: ~", "s14: ~"),
        ("name: s15\ndescription: [a, b]", "error: the description is not text: put \"[a, b]\" into quotes"),
        ("name: s16\ndescription: {a: b}", "error: the description is not text: put \"{a: b}\" into quotes"),
        ("name: s17\ndescription: \"open", "error: the quotes of \"\\\"open\" do not match"),
        ("name: s18\ndescription: *missing", "error: the description is not text: put \"*missing\" into quotes"),
        ("name: s19\ndescription: @at", "error: the description is not text: put \"@at\" into quotes"),
        ("name: s20\nname: s21\ndescription: Twice", "error: the front matter has name twice"),
        ("just a sentence", "error: the front matter has a line that is not key: value: \"just a sentence\""),
        ("- name: s23", "error: the front matter has a line that is not key: value: \"- name: s23\""),
        (
            "name: s24\n\tdescription: tab",
            "error: invalid name \"s24 description: tab\": use lower-case letters, digits and single hyphens, at most 64",
        ),
        ("", "error: the front matter has no name"),
    ];

    #[test]
    fn a05_front_matter_results_are_pinned() {
        let result = |yaml: &str| match parse(&format!("---\n{yaml}\n---\nDo it.\n")) {
            Ok(manifest) => format!("{}: {}", manifest.name, manifest.description),
            Err(reason) => format!("error: {reason}"),
        };
        for (yaml, expected) in FRONT_MATTER_RESULTS {
            assert_eq!(result(yaml), *expected, "{yaml}");
        }
    }

    #[test]
    fn x06_nesting_and_aliases_of_front_matter_are_bounded() {
        let with = |extra: &str| parse(&format!("---\nname: x\ndescription: y\n{extra}\n---\nDo it.\n"));
        let nested = format!("deep: {}{}", "[".repeat(20_000), "]".repeat(20_000));
        let bomb: String =
            (1..60).map(|level| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(9))).collect();
        // Refused or ignored, but never expanded.
        let (_deep, _bomb) = (with(&nested), with(&format!("a0: &a0 [x]\n{bomb}")));
    }
}
