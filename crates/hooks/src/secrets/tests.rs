use capstan_protocol::{Content, ContentPart, ToolOutput};
use serde_json::json;

use super::SecretMasker;

/// Sample of a realistic length.
const SAMPLE_API_KEY: &str = "sk-SECRETOPENAI-1234567890abcdef";

fn masker_for(secret: &str) -> SecretMasker {
    SecretMasker::new([secret.to_owned()])
}

fn masked_text(secrets: &SecretMasker, text: &str) -> String {
    secrets.mask_output(ToolOutput::ok(text)).text()
}

#[test]
fn x06_secret_in_a_tool_output_is_masked() {
    let secrets = SecretMasker::new(["sk-0123456789".to_owned(), "test".to_owned(), String::new()]);
    assert_eq!(masked_text(&secrets, "KEY=sk-0123456789\ntest"), "KEY=[masked]\ntest");
    assert_eq!(masked_text(&secrets, "nothing"), "nothing");
}

#[test]
fn x06_secret_is_masked_completely_whatever_characters_it_has() {
    let secrets = SecretMasker::new([
        "sk-0123456789\n".to_owned(),
        "sk-0123456789-long".to_owned(),
        "pass\"word\\1234".to_owned(),
    ]);
    assert_eq!(masked_text(&secrets, "sk-0123456789-long sk-0123456789"), "[masked] [masked]");
    let part = |part: serde_json::Value| serde_json::from_value::<ContentPart>(part).unwrap();
    let masked = |value| secrets.mask_output(ToolOutput::ok(Content::Parts(vec![part(value)]))).content;
    let other = json!({"type": "file", "name": "pass\"word\\1234"});
    assert_eq!(masked(other), Content::Parts(vec![part(json!({"type": "file", "name": "[masked]"}))]));
    let image = json!({"type": "image_url", "image_url": {"url": "https://x.example/?key=sk-0123456789"}});
    assert_eq!(masked(image), Content::Parts(vec![ContentPart::from_image_url("https://x.example/?key=[masked]")]));
    assert_eq!(masked_text(&secrets, "it is pass\"word\\1234!"), "it is [masked]!");
}

#[test]
fn x06_secret_is_masked_in_every_content_part_and_in_bytes() {
    let secrets = masker_for("one\ntwo\"three\\");
    assert_eq!(masked_text(&secrets, "it is one\ntwo\"three\\!"), "it is [masked]!");
    assert_eq!(masked_text(&secrets, r#"{"key": "one\ntwo\"three\\"}"#), r#"{"key": "[masked]"}"#, "in a JSON file");
    let other = json!({"type": "file", "about": ["one\ntwo\"three\\"], "bytes": 3});
    let parts =
        vec![ContentPart::from_text("one\ntwo\"three\\"), ContentPart::Other(other.as_object().unwrap().clone())];
    let masked = serde_json::to_value(secrets.mask_output(ToolOutput::ok(Content::Parts(parts))).content).unwrap();
    let expected = json!([{"type": "text", "text": "[masked]"}, {"type": "file", "about": ["[masked]"], "bytes": 3}]);
    assert_eq!(masked, expected);
    assert_eq!(secrets.mask_bytes(b"one\ntwo\"three\\".to_vec()), b"[masked]");
    assert_eq!(secrets.mask_bytes(vec![0, 255]), [0, 255]);
    assert_eq!(
        masker_for(SAMPLE_API_KEY).mask_bytes([b"\xff", SAMPLE_API_KEY.as_bytes(), b"\0"].concat()),
        b"\xff[masked]\0",
        "in binary content too"
    );
}

#[test]
fn x06_overlapping_secrets_are_masked_together() {
    let secrets = SecretMasker::new(["begin-0123456789".to_owned(), "0123456789-end".to_owned()]);
    assert_eq!(masked_text(&secrets, "a begin-0123456789-end z"), "a [masked] z");
    assert_eq!(masked_text(&secrets, "begin-01234567890123456789-end"), "[masked][masked]");
    let secrets = masker_for("abcabcabcabc");
    assert_eq!(masked_text(&secrets, "abcabcabcabcabc!"), "[masked]!");
}

#[test]
fn x06_substantial_part_of_a_secret_at_an_end_of_a_text_is_masked() {
    let secrets = masker_for(SAMPLE_API_KEY);
    for length in SAMPLE_API_KEY.len() / 4..SAMPLE_API_KEY.len() {
        assert_eq!(masked_text(&secrets, &format!("x {}", &SAMPLE_API_KEY[..length])), "x [masked]");
        assert_eq!(
            masked_text(&secrets, &format!("{} x", &SAMPLE_API_KEY[SAMPLE_API_KEY.len() - length..])),
            "[masked] x"
        );
    }
    for ordinary in ["sk-", "keys begin with sk-", "sk-SECR", "0abcdef is a colour", "in: sk-SECRETOPENAI."] {
        assert_eq!(masked_text(&secrets, ordinary), ordinary);
    }
    let ordinary_names = ["capstan-helper", "My Project Name of it", "my-company-assistant", "sk-0123456789"];
    let names = SecretMasker::new(ordinary_names.map(str::to_owned));
    for ordinary in ["/home/me/capstan", "capstan-help", "My Project Name", "/srv/my-company", "sk-012345678"] {
        assert_eq!(masked_text(&names, ordinary), ordinary, "not a truncated key");
    }
    let parts = Content::Parts(vec![
        ContentPart::from_text(&SAMPLE_API_KEY[..16]),
        ContentPart::from_text(&SAMPLE_API_KEY[16..]),
    ]);
    let masked = secrets.mask_output(ToolOutput::ok(parts)).content;
    assert_eq!(masked, Content::Parts(vec![ContentPart::from_text("[masked]"), ContentPart::from_text("[masked]")]));
}

#[test]
fn x06_safe_cut_never_splits_a_secret() {
    let secrets = SecretMasker::new([SAMPLE_API_KEY.to_owned(), "pässwörd-pässwörd".to_owned()]);
    let text = format!("é{SAMPLE_API_KEY}é and pässwörd-pässwörd é");
    let (key, word) = (2..2 + SAMPLE_API_KEY.len(), text.find("päss").unwrap()..text.len() - 3);
    for at in 0..text.len() + 2 {
        let cut = secrets.safe_cut(&text, at);
        let expected = [&key, &word].into_iter().find(|span| span.start < at && at < span.end);
        assert_eq!(cut, expected.map_or(text.floor_char_boundary(at), |span| span.end), "at {at}");
    }
    assert_eq!(secrets.first_chars(&text, 5), &text[..key.end]);
    assert_eq!(secrets.first_chars(&text, 1), "é");
    assert_eq!(secrets.first_chars(&text, 1000), text);
    assert_eq!(SecretMasker::default().safe_cut("some text", 4), 4);
}

#[test]
fn x06_secret_split_between_chunks_is_masked() {
    let secrets = SecretMasker::new([
        SAMPLE_API_KEY.to_owned(),
        "sk-SECRETOPENAI".to_owned(),
        "abcdef-and-another".to_owned(),
        "abcabcabcabc".to_owned(),
    ]);
    let texts = [
        format!("one {SAMPLE_API_KEY} two {SAMPLE_API_KEY}{SAMPLE_API_KEY}"),
        format!("{SAMPLE_API_KEY}-and-another."),
        "sk-SECRETOPENAI-1234 sk-SECRETOPENAI".to_owned(),
        "sk- s sk-SECRET! abcabcabcabcabcab".to_owned(),
        "nothing here\n".to_owned(),
    ];
    for text in texts {
        let mut whole = text.clone();
        secrets.mask_fragment(&mut whole);
        for size in 1..=text.len() {
            let mut stream = secrets.masking_stream();
            let mut emitted: Vec<u8> = text.as_bytes().chunks(size).flat_map(|chunk| stream.push(chunk)).collect();
            emitted.extend(stream.finish());
            assert_eq!(String::from_utf8(emitted).unwrap(), whole, "{text} in chunks of {size}");
            assert_eq!(stream.finish(), b"", "no bytes are emitted twice");
        }
    }
}

#[test]
fn x06_buffered_bytes_are_emitted_at_the_end_unless_they_are_part_of_a_secret() {
    let push_and_finish = |text: &str| {
        let mut stream = masker_for(SAMPLE_API_KEY).masking_stream();
        let emitted = [stream.push(text.as_bytes()), stream.finish()];
        emitted.map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(push_and_finish("keys begin with sk-"), ["keys begin with ", "sk-"]);
    assert_eq!(push_and_finish("sk-\n"), ["sk-\n", ""]);
    assert_eq!(push_and_finish(&SAMPLE_API_KEY[..31]), ["", "[masked]"]);
}
