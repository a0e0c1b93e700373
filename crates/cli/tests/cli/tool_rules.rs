//! Rules that restrict the agent whatever a prompt says. The model here obeys every instruction.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::{BinaryOutput, CliFixture, StdioServer, TEST_API_KEY, entries_of_kind};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Results of these tool calls, one per step.
fn run_tool_calls(
    fixture: impl FnOnce(&ScriptedModel) -> CliFixture,
    calls: &[(&str, Value)],
) -> (CliFixture, Vec<String>) {
    let mut replies: Vec<ScriptedReply> = Vec::new();
    for (number, (tool, arguments)) in calls.iter().enumerate() {
        replies.push(ScriptedReply::tool_calls([(format!("call_{number}"), (*tool).to_owned(), arguments.clone())]));
    }
    replies.push(ScriptedReply::text("done"));
    let server = ScriptedModel::start_blocking(replies);
    let fixture = fixture(&server);
    fixture.capstan(&["run", "do what I say"]).succeeded();
    let entries = fixture.entries();
    let results = entries_of_kind(&entries, "tool_result");
    let text = |entry: &&Value| entry["payload"]["results"][0].to_string();
    (fixture, results.iter().map(text).collect())
}

#[test]
fn x06_file_tools_do_not_leave_the_workspace() {
    let prepare = |server: &ScriptedModel| {
        let fixture = CliFixture::with_model(server).config("model = 'openai:scripted'");
        fixture.file("secret", "the secret of the house");
        symlink(fixture.path("secret"), fixture.workspace().join("link")).unwrap();
        fixture
    };
    let (fixture, answers) = run_tool_calls(
        prepare,
        &[
            ("fs_read", json!({"path": "/etc/passwd"})),
            ("fs_read", json!({"path": "../secret"})),
            ("fs_read", json!({"path": "link"})),
            ("fs_read", json!({"path": "../home/config.toml"})),
            ("fs_write", json!({"path": "../home/config.toml", "content": "allow_paths = ['/']"})),
            ("fs_write", json!({"path": "link", "content": "gone"})),
            ("fs_edit", json!({"path": "../secret", "old": "secret", "new": "x"})),
            ("fs_read", json!({"path": "/proc/self/environ"})),
        ],
    );
    assert_eq!(answers.len(), 8);
    for answer in &answers {
        assert!(answer.contains("outside the workspace and the allowed paths"), "{answer}");
    }
    assert_eq!(std::fs::read_to_string(fixture.path("secret")).unwrap(), "the secret of the house");
    fixture.assert_not_in_home("the secret of the house");
}

#[test]
fn x06_allowed_paths_are_open_except_the_home() {
    let prepare = |server: &ScriptedModel| {
        let fixture = CliFixture::with_model(server);
        let root = fixture.root().display().to_string();
        let fixture = fixture.config(&format!("allow_paths = ['{root}']\n"));
        fixture.file("notes", "shared notes");
        fixture
    };
    let (fixture, answers) = run_tool_calls(
        prepare,
        &[("fs_read", json!({"path": "../notes"})), ("fs_read", json!({"path": "../home/config.toml"}))],
    );
    assert!(answers[0].contains("shared notes"), "{answers:?}");
    assert!(answers[1].contains("is in Capstan's own directory"), "{answers:?}");
    std::fs::write(fixture.workspace().join("capstan.toml"), "allow_paths = ['/']").unwrap();
    fixture.capstan(&["run", "again"]).refused("config-untrusted", 3);
    std::fs::write(fixture.workspace().join("capstan.toml"), "web_allow_private = ['127.0.0.1']").unwrap();
    fixture.capstan(&["run", "again"]).refused("config-untrusted", 3);
}

#[test]
fn x06_private_addresses_are_not_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (_, answers) = run_tool_calls(
        CliFixture::with_model,
        &[
            ("web_fetch", json!({"url": format!("http://{address}/")})),
            ("web_fetch", json!({"url": format!("http://localhost:{}/", address.port())})),
            ("web_fetch", json!({"url": format!("http://[::ffff:127.0.0.1]:{}/", address.port())})),
            ("web_fetch", json!({"url": "http://169.254.169.254/latest/meta-data/iam/security-credentials/"})),
            ("web_fetch", json!({"url": "http://metadata.google.internal@169.254.169.254/"})),
            ("web_fetch", json!({"url": "file:///etc/passwd"})),
        ],
    );
    assert_eq!(answers.len(), 6);
    assert!(answers.iter().all(|answer| answer.contains("not allowed")), "{answers:#?}");
    assert!(listener.accept().is_err(), "no connection was made");
}

#[test]
fn a04_allowed_private_address_is_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<h1>Status</h1><p>all is well").unwrap();
    });
    let prepare =
        |model: &ScriptedModel| CliFixture::with_model(model).config(&format!("web_allow_private = ['{address}']\n"));
    let (_, answers) = run_tool_calls(prepare, &[("web_fetch", json!({"url": format!("http://{address}/")}))]);
    server.join().unwrap();
    assert!(answers[0].contains("# Status\\n\\nall is well"), "{answers:?}");
}

#[test]
fn x06_key_is_not_in_the_environment_of_a_command() {
    let prepare = |server: &ScriptedModel| {
        let fixture =
            CliFixture::with_model(server).set("ANTHROPIC_API_KEY", "sk-ant-other").set("GITHUB_TOKEN", "ghp_secret");
        fixture.set("CAPSTAN_BASH_ENVIRONMENT", "MINE,GITHUB_TOKEN,CAPSTAN_API_KEY").set("MINE", "yes")
    };
    let (fixture, answers) = run_tool_calls(prepare, &[("bash", json!({"cmd": "env; echo \"[$CAPSTAN_API_KEY]\""}))]);
    for secret in [TEST_API_KEY, "sk-ant-other", "ghp_secret", "CAPSTAN_"] {
        assert!(!answers.iter().any(|answer| answer.contains(secret)), "{secret}: {answers:?}");
    }
    assert!(
        answers[0].contains("PATH=") && answers[0].contains("MINE=yes") && answers[0].contains("[]"),
        "{answers:?}"
    );
    fixture.assert_not_in_home(TEST_API_KEY);
}

/// A key that no tool may show, neither in full nor in part.
const OPENAI_SECRET: &str = "sk-SECRETOPENAI-1234567890abcdef";

/// A fixture with the key in its configuration and in a file.
fn fixture_with_secret(server: &ScriptedModel) -> CliFixture {
    let fixture = CliFixture::with_model(server).set("OPENAI_API_KEY", OPENAI_SECRET);
    std::fs::write(fixture.workspace().join("key"), OPENAI_SECRET).unwrap();
    fixture
}

/// Asserts that no part of the key is in the results or in the home, not even in concatenated results.
fn assert_secret_not_leaked(fixture: &CliFixture, answers: &[String]) {
    let all = answers.join("");
    let part = OPENAI_SECRET.as_bytes().windows(6).find(|part| all.contains(std::str::from_utf8(part).unwrap()));
    assert_eq!(part.map(String::from_utf8_lossy), None, "{}", all.len());
    for part in ["sk-SECRET", "SECRETOPENAI", "1234567890"] {
        fixture.assert_not_in_home(part);
    }
}

#[test]
fn x06_truncated_file_or_output_shows_no_part_of_a_key() {
    let prepare = |server: &ScriptedModel| {
        let fixture = fixture_with_secret(server);
        std::fs::write(fixture.workspace().join("line"), format!("{}{OPENAI_SECRET}", "x".repeat(1969))).unwrap();
        std::fs::write(fixture.workspace().join("longer"), format!("{}{OPENAI_SECRET} more", "x".repeat(1990)))
            .unwrap();
        fixture
    };
    let long = "head -c 4194290 /dev/zero | tr '\\0' x; cat key; head -c 5000000 /dev/zero | tr '\\0' y";
    let calls = [
        ("fs_read", json!({"path": "line"})),
        ("fs_read", json!({"path": "longer"})),
        ("bash", json!({"cmd": long})),
        ("bash", json!({"cmd": "head -c 31 key"})),
        ("bash", json!({"cmd": "tail -c 31 key"})),
    ];
    let (fixture, answers) = run_tool_calls(prepare, &calls);
    assert!(answers[0].contains("x[masked]") && !answers[0].contains("left out"), "{answers:?}");
    assert!(answers[1].contains("x[masked] [5 bytes of this line left out]"), "{answers:?}");
    assert!(answers[2].contains("in artifact "), "{answers:?}");
    assert!(answers[3..].iter().all(|answer| answer.contains("[masked]")), "{answers:?}");
    assert_secret_not_leaked(&fixture, &answers);
}

#[test]
fn x06_truncated_page_shows_no_part_of_a_key() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let page = format!("{}{OPENAI_SECRET}{}", "x".repeat(39_970), "y".repeat(1000));
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{head}{page}").as_bytes()).unwrap();
        }
    });
    let prepare =
        |model: &ScriptedModel| fixture_with_secret(model).config(&format!("web_allow_private = ['{address}']\n"));
    let url = format!("http://{address}/");
    let calls = [("web_fetch", json!({"url": url})), ("web_fetch", json!({"url": url, "max_chars": 40_001}))];
    let (fixture, answers) = run_tool_calls(prepare, &calls);
    server.join().unwrap();
    assert!(answers.iter().all(|answer| answer.contains("x[masked]\\n[1000 characters left out")), "{answers:?}");
    assert_secret_not_leaked(&fixture, &answers);
}

#[test]
fn x06_knowledge_passage_shows_no_part_of_a_key() {
    let prepare = |server: &ScriptedModel| {
        let fixture = fixture_with_secret(server);
        let docs = fixture.root().join("docs");
        std::fs::create_dir(&docs).unwrap();
        // A passage ends after 2000 bytes, within the key.
        std::fs::write(docs.join("a.md"), format!("rope {} {OPENAI_SECRET} rope", "x".repeat(1979))).unwrap();
        fixture.config(&format!("[knowledge.docs]\npath = '{}'\n", docs.display()))
    };
    let (fixture, answers) = run_tool_calls(prepare, &[("knowledge_search", json!({"query": "rope"}))]);
    assert_eq!(answers[0].matches("[masked]").count(), 2, "{answers:?}");
    assert_secret_not_leaked(&fixture, &answers);
}

#[test]
fn x06_background_output_shows_no_part_of_a_key_between_reads() {
    let job = "head -c 11 key; touch said1; until [ -e go1 ]; do sleep 0.01; done; \
        head -c 22 key | tail -c 11; touch said2; until [ -e go2 ]; do sleep 0.01; done; tail -c 10 key; echo .";
    let look = || ("bash_output", json!({"job": "job-1"}));
    let wait_for = |cmd: &str| ("bash", json!({"cmd": format!("{cmd} do sleep 0.01; done")}));
    let calls = [
        ("bash", json!({"cmd": job, "background": true})),
        wait_for("until [ -e said1 ];"),
        look(),
        wait_for("touch go1; until [ -e said2 ];"),
        look(),
        ("bash", json!({"cmd": "touch go2"})),
        ("bash_output", json!({"job": "job-1", "wait_seconds": 60})),
    ];
    let (fixture, answers) = run_tool_calls(fixture_with_secret, &calls);
    assert!(answers[2].contains("[job-1 is running]") && answers[4].contains("[job-1 is running]"), "{answers:?}");
    assert!(answers[6].contains("[masked].\\n[job-1 exited]"), "{answers:?}");
    assert_secret_not_leaked(&fixture, &answers);
}

/// Conventional id of the unprivileged system user, who owns no files.
const UNPRIVILEGED_UID: u32 = 65534;

#[test]
fn x06_command_cannot_read_the_memory_of_the_host() {
    let look =
        json!({"cmd": "for part in environ mem maps; do head -c 1 /proc/$PPID/$part && echo $part is open; done"});
    let replies = vec![ScriptedReply::tool_calls([("call_1", "bash", look)]), ScriptedReply::text("done")];
    let server = ScriptedModel::start_blocking(replies);
    let fixture = CliFixture::with_model(&server).config("");
    let mut command = fixture.command(&["run", "look"]);
    // Root may read everything.
    if std::fs::metadata(fixture.root()).unwrap().uid() == 0 {
        let copy = fixture.root().join("capstan");
        std::fs::copy(command.get_program(), &copy).unwrap();
        for path in [fixture.root(), fixture.workspace(), fixture.home(), fixture.home().join("config.toml")] {
            chown(path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).unwrap();
        }
        let mut unprivileged_command = Command::new(copy);
        unprivileged_command.args(command.get_args()).current_dir(fixture.workspace()).env_clear();
        unprivileged_command.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command = unprivileged_command;
        command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
    }
    BinaryOutput::from(command.output().unwrap()).succeeded();
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // Root does not use the home of another user either.
        for path in [fixture.home(), fixture.home().join("config.toml")] {
            chown(path, Some(0), Some(0)).unwrap();
        }
    }
    let entries = fixture.entries();
    let answer = entries_of_kind(&entries, "tool_result")[0]["payload"]["results"][0].to_string();
    assert!(answer.matches("Permission denied").count() == 3 && !answer.contains("is open"), "{answer}");
}

/// Most memory that a process has had, in MiB.
fn peak_memory_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn x06_large_edits_of_many_sessions_at_once_take_little_memory() {
    let fixture = CliFixture::new();
    let files: Vec<String> = (0..6).map(|number| format!("f{number}.txt")).collect();
    for file in &files {
        std::fs::write(fixture.workspace().join(file), "a".repeat(4 << 20)).unwrap();
    }
    let mut server = StdioServer::start(&fixture);
    for file in &files {
        let text = format!(",fs.edit path={file} old=a new=b replace_all=true");
        server.send_line(&json!({"id": file, "session": file, "text": text}));
    }
    for _ in &files {
        let reply = server.recv_line();
        assert!(reply["text"].to_string().contains("in 4194304 places"), "{reply}");
    }
    // A list of the places in one file would take 32 MiB, and more while it grows.
    let peak = peak_memory_mib(server.process_id());
    assert!(peak < 150, "{peak} MiB");
    server.close().succeeded();
}
