use super::{ConfigError, ConfigFixture};

#[test]
fn g11_knowledge_bases_are_named_folders() {
    let fixture = ConfigFixture::new().home(
        "[knowledge.docs]\npath = '~/docs'\ndescription = 'the handbook'\n\n[knowledge.team-notes]\npath = '/srv/notes'",
    );
    let fixture = fixture.variable("HOME", "/home/me").variable("CAPSTAN_KNOWLEDGE__FAQ__PATH", "/srv/faq");
    let bases = fixture.load().unwrap().knowledge;
    let bases: Vec<_> =
        bases.iter().map(|base| (base.name.as_str(), base.path.to_str().unwrap(), base.description.as_str())).collect();
    assert_eq!(
        bases,
        [
            ("docs", "/home/me/docs", "the handbook"),
            ("faq", "/srv/faq", "faq"),
            ("team-notes", "/srv/notes", "team-notes"),
        ]
    );
    assert_eq!(fixture.setting("knowledge.docs.description").value.as_deref(), Some("the handbook"));
}

#[test]
fn g11_invalid_knowledge_base_is_rejected() {
    for (text, expected) in [
        ("knowledge = 'docs'", "as in [knowledge.docs]"),
        ("[knowledge]\ndocs = '/srv'", "must be a table"),
        ("[knowledge.docs]", "knowledge.docs has no path"),
        ("[knowledge.docs]\npath = 'docs'", "must start with / or ~/"),
        ("[knowledge.docs]\npath = 7", "must be a string"),
        ("[knowledge.docs]\ndescription = 'x'", "requires knowledge.docs.path"),
        ("[knowledge.docs]\npat = '/srv'", "path"),
        ("[knowledge.'a b']\npath = '/srv'", "letters, digits"),
    ] {
        let error = ConfigFixture::new().home(text).load().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn x06_workspace_cannot_add_a_knowledge_base() {
    let fixture = ConfigFixture::new().workspace("capstan.toml", "[knowledge.mine]\npath = '/etc'");
    let error = fixture.load().unwrap_err();
    assert!(matches!(&error, ConfigError::Untrusted { key, .. } if key == "knowledge.mine.path"), "{error}");
    let fixture = ConfigFixture::new().workspace(".env", "CAPSTAN_KNOWLEDGE__MINE__PATH=/etc");
    assert!(matches!(fixture.load().unwrap_err(), ConfigError::Untrusted { .. }));
}
