//! Plugins that run as processes of their own, from the user's view.

use std::fs;

use serde_json::{Value, json};

use crate::support::CliFixture;

/// Fixture in which programs such as `python3` are found.
fn fixture() -> CliFixture {
    CliFixture::new().set("PATH", &std::env::var("PATH").unwrap())
}

fn list(fixture: &CliFixture) -> Value {
    fixture.capstan(&["plugin", "list", "--json"]).json()
}

#[test]
fn k06_a_new_plugin_is_installed_bound_and_answers() {
    let fixture = fixture();
    fixture.capstan(&["plugin", "new", "greeter", "--author", "ann"]).succeeded();
    let main = fixture.workspace().join("greeter/main.py");
    let text = fs::read_to_string(&main).unwrap();
    fs::write(&main, text.replace("Hello! ", "Servus! ")).unwrap();
    let shown = fixture.capstan(&["plugin", "install", "greeter"]).data();
    assert!(shown.contains("runner       main: state (conversation)"), "{shown}");
    assert!(shown.contains("installed ann/greeter 0.1.0 (enabled)"), "{shown}");
    fixture.capstan(&["bindings", "set", "greeter/binding.toml"]).succeeded();
    assert_eq!(fixture.capstan(&["run", "h\u{e9}"]).data(), "Servus! That was message 1: h\u{e9}\n");
    assert_eq!(fixture.capstan(&["run", "again"]).data(), "Servus! That was message 2: again\n");
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.capstan(&["plugin", "disable", "greeter"]).succeeded();
    fixture.capstan(&["run", "x"]).failed("runner-unknown", 1);
    fixture.capstan(&["plugin", "enable", "greeter"]).succeeded();
    assert_eq!(fixture.capstan(&["run", "y"]).data(), "Servus! That was message 3: y\n");
    fixture.capstan(&["plugin", "remove", "greeter"]).succeeded();
    assert_eq!(list(&fixture), json!([]));
    fixture.capstan(&["plugin", "remove", "greeter"]).refused("plugin-unknown", 2);
}

#[test]
fn x05_a_plugin_that_fails_ends_its_run_and_is_found_by_doctor() {
    let fixture = fixture();
    fixture.capstan(&["plugin", "new", "greeter"]).succeeded();
    fs::write(fixture.workspace().join("greeter/main.py"), "import no_such_module\n").unwrap();
    fixture.capstan(&["plugin", "install", "greeter"]).succeeded();
    fixture.capstan(&["bindings", "set", "greeter/binding.toml"]).succeeded();
    let failed = fixture.capstan(&["run", "x"]).failed("plugin-failed", 1);
    assert!(failed.stderr.contains("the plugin local/greeter failed: it exited with status 1"), "{failed:?}");
    let doctor = fixture.capstan(&["plugin", "doctor"]).failed("plugin-failed", 1);
    assert!(doctor.stdout.contains("No module named 'no_such_module'"), "{doctor:?}");
}

#[test]
fn g03_a_bad_manifest_is_listed_as_failed_and_nothing_else_is_affected() {
    let fixture = fixture();
    fixture.capstan(&["plugin", "new", "good"]).succeeded();
    fixture.capstan(&["plugin", "install", "good"]).succeeded();
    let bad = fixture.home().join("plugins/bad");
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join("plugin.toml"), "id = \"ann/bad\"\nversion = \"1\"\nprotocol = 1\ncomand = [\"x\"]\n").unwrap();
    let plugins = list(&fixture);
    assert_eq!((&plugins[0]["name"], &plugins[0]["state"]), (&json!("bad"), &json!("failed")));
    assert_eq!(plugins[0]["error"]["code"], "plugin-invalid");
    assert_eq!((&plugins[1]["name"], &plugins[1]["state"]), (&json!("good"), &json!("enabled")));
    let hooks = fixture.capstan(&["hooks"]).succeeded().stdout;
    assert!(hooks.contains("plugin bad did not load") && hooks.contains("command: is missing"), "{hooks}");
    assert!(fixture.capstan(&["runners", "list"]).succeeded().stdout.contains("plugin:local/good/main"));
    let shown = fixture.capstan(&["plugin", "show", "bad"]).refused("plugin-invalid", 2);
    assert!(shown.stderr.contains("command: is missing or empty"), "{shown:?}");
}

#[test]
fn h07_a_host_does_not_start_without_a_required_plugin() {
    let fixture = fixture();
    fixture.capstan(&["plugin", "new", "guard"]).succeeded();
    let manifest = fixture.workspace().join("guard/plugin.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("protocol = 1", "protocol = 1\nrequired = true")).unwrap();
    fixture.capstan(&["plugin", "install", "guard"]).succeeded();
    let fixture = fixture.config("[plugins.guard]\ncolor = \"red\"\n");
    let failed = fixture.capstan(&["run", "x"]).failed("plugin-failed", 1);
    assert!(failed.stderr.contains("the plugin guard is required and did not load"), "{failed:?}");
    fixture.capstan(&["plugin", "disable", "guard"]).succeeded();
    fixture.capstan(&["run", "x"]).succeeded();
}
