//! Manifests and the folders of installed plugins.

use std::fs;
use std::path::Path;

use capstan_plugins::{PluginError, PluginHome, read_manifest};
use capstan_protocol::{CodedError as _, ErrorCode};
use tempfile::tempdir;

const MANIFEST: &str = "id = \"ann/greeter\"\nversion = \"1.0.0\"\nprotocol = 1\ncommand = [\"sh\", \"main.sh\"]\n";

fn write_plugin(folder: &Path, manifest: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("plugin.toml"), manifest).unwrap();
    fs::write(folder.join("main.sh"), "exit 0\n").unwrap();
}

#[test]
fn g03_the_manifest_of_the_specification_is_valid() {
    let page = include_str!("../../../../docs/plugin-protocol.md");
    let examples: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let folder = tempdir().unwrap();
        write_plugin(folder.path(), example);
        read_manifest(folder.path()).unwrap();
    }
}

#[test]
fn g03_a_folder_that_is_no_plugin_is_reported_with_reason_and_hint() {
    let cases = [
        (None, "plugin.toml: No such file"),
        (Some("id = \"ann/greeter\"\nversion = \n"), "plugin.toml, line 2:"),
        (Some("id = 7"), "protocol: is missing"),
        (Some("protocol = 1\nid = 7"), "id: must be a text, not a number"),
    ];
    for (manifest, expected) in cases {
        let folder = tempdir().unwrap();
        if let Some(manifest) = manifest {
            write_plugin(folder.path(), manifest);
        }
        let error = read_manifest(folder.path()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.code(), ErrorCode::PluginInvalid);
        assert!(error.hint().is_some());
    }
    let folder = tempdir().unwrap();
    write_plugin(folder.path(), &format!("{MANIFEST}[config_schema]\ntype = \"no-type\"\n"));
    let error = read_manifest(folder.path()).unwrap_err().to_string();
    assert!(error.contains("config_schema: not a valid schema"), "{error}");
}

#[test]
fn g03_an_installed_plugin_is_listed_enabled_disabled_and_removed() {
    let (home, source) = (tempdir().unwrap(), tempdir().unwrap());
    write_plugin(source.path(), MANIFEST);
    fs::create_dir(source.path().join(".git")).unwrap();
    fs::create_dir(source.path().join("lib")).unwrap();
    fs::write(source.path().join("lib/a.sh"), "x").unwrap();
    let plugins = PluginHome::new(home.path());
    assert!(plugins.plugins().is_empty());
    let installed = plugins.install(source.path()).unwrap();
    assert!(installed.record.enabled && installed.manifest.is_ok());
    assert!(installed.path.join("lib/a.sh").exists() && !installed.path.join(".git").exists());
    assert!(plugins.set_enabled("greeter", false).unwrap() && !plugins.set_enabled("greeter", false).unwrap());
    fs::create_dir_all(&installed.data_dir).unwrap();
    // An upgrade replaces the files, and keeps the data and the setting.
    fs::remove_file(source.path().join("lib/a.sh")).unwrap();
    let upgraded = plugins.install(source.path()).unwrap();
    assert!(!upgraded.path.join("lib/a.sh").exists() && !upgraded.record.enabled && upgraded.data_dir.exists());
    assert_eq!(plugins.plugins().len(), 1, "no folder of the upgrade is left");
    plugins.remove("greeter", false).unwrap();
    assert!(plugins.plugins().is_empty() && upgraded.data_dir.exists());
    assert!(matches!(plugins.remove("greeter", false), Err(PluginError::Unknown { .. })));
}

#[test]
fn g03_a_name_of_a_plugin_does_not_lead_out_of_the_folder() {
    let home = tempdir().unwrap();
    write_plugin(&home.path().join("precious"), MANIFEST);
    fs::create_dir(home.path().join("plugins")).unwrap();
    let plugins = PluginHome::new(home.path());
    for name in ["../precious", "..", "", "."] {
        assert!(matches!(plugins.remove(name, true), Err(PluginError::Unknown { .. })), "{name}");
    }
    assert!(home.path().join("precious/plugin.toml").exists());
}

#[test]
fn g03_a_plugin_with_a_link_is_not_installed() {
    let (home, source) = (tempdir().unwrap(), tempdir().unwrap());
    write_plugin(source.path(), MANIFEST);
    std::os::unix::fs::symlink("/etc/passwd", source.path().join("link")).unwrap();
    let plugins = PluginHome::new(home.path());
    assert!(plugins.install(source.path()).is_err());
    assert!(plugins.plugins().is_empty());
}

#[test]
fn g15_a_plugin_whose_folder_has_another_name_is_listed_as_failed() {
    let home = tempdir().unwrap();
    write_plugin(&home.path().join("plugins/other"), MANIFEST);
    let plugin = PluginHome::new(home.path()).plugin("other").unwrap();
    let error = plugin.manifest.unwrap_err().to_string();
    assert!(error.contains("names the plugin greeter, its folder is other"), "{error}");
}
