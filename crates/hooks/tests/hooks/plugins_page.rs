//! `docs/plugins.md` shows the compiled example of a channel.

use std::path::Path;

#[test]
fn plugins_page_has_the_example_of_a_channel() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let source = read("src/contracts/channel.rs");
    let lines = source.lines().skip_while(|line| *line != "/// ```").skip(1).take_while(|line| *line != "/// ```");
    let example: Vec<&str> =
        lines.map(|line| line.strip_prefix("/// ").or(line.strip_prefix("///")).unwrap()).collect();
    assert!(example.len() > 20, "{example:?}");
    // A distribution reaches both crates through `capstan`.
    let expected =
        example.join("\n").replace("capstan_hooks", "capstan::hooks").replace("capstan_protocol", "capstan::protocol");
    assert!(read("../../docs/plugins.md").contains(&format!("```rust\n{expected}\n```")), "{expected}");
}
