//! Front matter of a `SKILL.md`: a YAML mapping with `name` and `description`.
//!
//! Unknown keys are ignored with their values. A plain value that contains a colon, such as `description: Use it when: ..`,
//! is not valid YAML but common, and is read as text.

use serde::Deserialize;

/// Maximum length of a skill name.
const MAX_SKILL_NAME_LEN: usize = 64;
/// Maximum length of a description.
const MAX_SKILL_DESCRIPTION_CHARS: usize = 1024;
/// Maximum number of YAML nodes, including those that aliases repeat.
const MAX_YAML_NODES: usize = 10_000;
/// Maximum nesting of YAML collections.
const MAX_YAML_DEPTH: usize = 32;

/// Parsed `SKILL.md`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkillManifest {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) body: String,
}

/// Keys of the front matter.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a mapping with the keys name and description")]
struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
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
    let FrontMatter { name, description } = parse_head(&head)?;
    let name = name.ok_or("the front matter has no name")?;
    check_name(&name)?;
    let description = description.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let description = description.ok_or("the front matter has no description")?;
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

/// Parses the lines between the markers; a value with a colon is accepted only if the lines are not valid YAML.
fn parse_head(lines: &[&str]) -> Result<FrontMatter, String> {
    if lines.iter().all(|line| line.trim().is_empty() || line.starts_with('#')) {
        return Err("the front matter is empty".to_owned());
    }
    parse_yaml(&lines.join("\n")).or_else(|error| {
        parse_yaml(&fold_values_with_colons(lines)).map_err(|_| {
            format!("invalid front matter: {}", error.render_with_formatter(&serde_saphyr::UserMessageFormatter))
        })
    })
}

fn parse_yaml(yaml: &str) -> Result<FrontMatter, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_nodes: MAX_YAML_NODES,
            max_depth: MAX_YAML_DEPTH,
            flow_nesting_limit: MAX_YAML_DEPTH,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_NODES,
        },
        with_snippet: false,
    };
    // The opening marker makes line numbers those of the file.
    serde_saphyr::from_str_with_options(&format!("---\n{yaml}\n"), options)
}

/// Turns top-level plain values that contain a colon into folded blocks, whose text is not interpreted.
fn fold_values_with_colons(lines: &[&str]) -> String {
    let mut folded = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let value = line.split_once(": ").filter(|(key, value)| is_plain_key(key) && is_plain_with_colon(value));
        let Some((key, value)) = value else {
            folded.push((*line).to_owned());
            continue;
        };
        let next = lines.get(index + 1).copied().unwrap_or_default();
        let indent = &next[..next.len() - next.trim_start_matches(' ').len()];
        let indent = if indent.is_empty() || next.trim().is_empty() { "  " } else { indent };
        let text = value.split(" #").next().unwrap_or_default().trim();
        folded.push(format!("{key}: >-\n{indent}{text}"));
    }
    folded.join("\n")
}

fn is_plain_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_alphanumeric()) && !key.contains([':', '#', '"', '\''])
}

fn is_plain_with_colon(value: &str) -> bool {
    let value = value.trim_start();
    value.contains(": ") && value.starts_with(|c: char| c.is_alphanumeric())
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
        assert!(wrong("---\nname: x\nname: y\n---\nx").contains("duplicate mapping key: name"));
        assert!(wrong("---\nwhat is this\n---\nx").contains("expected mapping"));
        assert!(parse_description("description: \"open").unwrap_err().contains("quoted scalar"));
        for not_text in ["[a: b", "[a, b]", "{a: b}", "*there", "@at"] {
            let wrong = parse_description(&format!("description: {not_text}")).unwrap_err();
            assert!(wrong.starts_with("invalid front matter: ") && wrong.contains("line "), "{wrong}");
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
        ("\"name\": s2\n'description': \"Quoted keys\"", "s2: Quoted keys"),
        ("{name: s3, description: Flow mapping}", "s3: Flow mapping"),
        ("name: s4\ndescription: Use it when: always # why not", "s4: Use it when: always"),
        ("name: s5\ndescription: >-\n  One\n  two\n\n  three", "s5: One two\nthree"),
        ("name: s6\ndescription: |\n  One\n    two", "s6: One\n  two"),
        ("name: s7\ndescription: One\n  two # three", "s7: One two"),
        ("name: 123\ndescription: 4.50", "123: 4.50"),
        ("x: &text Shared\nname: s9\ndescription: *text", "s9: Shared"),
        ("name: s10\ndescription: \"Tab\\there, caf\\u00e9\"", "s10: Tab\there, café"),
        ("name: s11\ndescription: !note Tagged", "s11: Tagged"),
        (
            "name: s12\nmetadata:\n  name: other\n  tags: [a, {b: c}]\nallowed-tools:\n- bash\ndescription: Fine",
            "s12: Fine",
        ),
        ("name: s13\ndescription: It's a \"test\": really", "s13: It's a \"test\": really"),
        ("name: s14\ndescription: ~", "error: the front matter has no description"),
        ("name: s15\ndescription: [a, b]", "error: invalid front matter: expected string scalar at line 3, column 14"),
        ("name: s16\ndescription: {a: b}", "error: invalid front matter: expected string scalar at line 3, column 14"),
        (
            "name: s17\ndescription: \"open",
            "error: invalid front matter: invalid indentation in multiline quoted scalar at line 4, column 1",
        ),
        (
            "name: s18\ndescription: *missing",
            "error: invalid front matter: reference to unknown value at line 3, column 14",
        ),
        ("name: s19\ndescription: @at", "error: invalid front matter: unexpected character: `@' at line 3, column 14"),
        (
            "name: s20\nname: s21\ndescription: Twice",
            "error: invalid front matter: duplicate mapping key: name not allowed here at line 3, column 1",
        ),
        ("just a sentence", "error: invalid front matter: expected mapping start at line 2, column 1"),
        ("- name: s23", "error: invalid front matter: expected mapping start at line 2, column 1"),
        (
            "name: s24\n\tdescription: tab",
            "error: invalid front matter: while scanning a plain scalar, found a tab at line 2, column 7",
        ),
        ("", "error: the front matter is empty"),
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
        let level = |level: usize| format!("a{level}: &a{level} [{}]", format!("*a{},", level - 1).repeat(9));
        let bomb = (1..60).map(level).collect::<Vec<_>>().join("\n");
        assert!(with(&nested).unwrap_err().contains("invalid front matter"));
        assert!(with(&format!("a0: &a0 [x]\n{bomb}")).unwrap_err().contains("invalid front matter"));
    }
}
