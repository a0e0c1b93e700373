use super::{ConfigError, ConfigFixture};

#[test]
fn k04_knowledge_bases_are_folders_with_names() {
    let place = ConfigFixture::new().home(
        "[knowledge.docs]\npath = '~/docs'\ndescription = 'the handbook'\n\n[knowledge.team-notes]\npath = '/srv/notes'",
    );
    let place = place.variable("HOME", "/home/me").variable("CAPSTAN_KNOWLEDGE__FAQ__PATH", "/srv/faq");
    let bases = place.load().unwrap().knowledge;
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
    assert_eq!(place.setting("knowledge.docs.description").value.as_deref(), Some("the handbook"));
}

#[test]
fn k04_a_knowledge_base_that_makes_no_sense_is_refused() {
    for (text, words) in [
        ("knowledge = 'docs'", "as in [knowledge.docs]"),
        ("[knowledge]\ndocs = '/srv'", "must be a table"),
        ("[knowledge.docs]", "knowledge.docs has no path"),
        ("[knowledge.docs]\npath = 'docs'", "it must begin with / or ~/"),
        ("[knowledge.docs]\npath = 7", "must be a text"),
        ("[knowledge.docs]\ndescription = 'x'", "it means nothing without knowledge.docs.path"),
        ("[knowledge.docs]\npat = '/srv'", "path"),
        ("[knowledge.'a b']\npath = '/srv'", "letters, digits"),
    ] {
        let error = ConfigFixture::new().home(text).load().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn x06_a_workspace_opens_no_folder_as_knowledge() {
    let place = ConfigFixture::new().workspace("capstan.toml", "[knowledge.mine]\npath = '/etc'");
    let error = place.load().unwrap_err();
    assert!(matches!(&error, ConfigError::Untrusted { key, .. } if key == "knowledge.mine.path"), "{error}");
    let place = ConfigFixture::new().workspace(".env", "CAPSTAN_KNOWLEDGE__MINE__PATH=/etc");
    assert!(matches!(place.load().unwrap_err(), ConfigError::Untrusted { .. }));
}
