//! The agent loop of the real binary with typical faults of models: wrong arguments, unknown tools, hanging tools, hundreds
//! of calls at once, context overflows.

use crate::support::{BinaryOutput, CliFixture, StdioServer, entries_named, entries_of_kind, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use serde_json::{Value, json};

/// Tool results at the end of a request.
fn tool_results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter().rev();
    let mut results: Vec<String> = messages
        .take_while(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().expect("a text").to_owned())
        .collect();
    results.reverse();
    results
}

/// Asserts that every call on the tape has exactly one result, and that the tape is undamaged.
#[track_caller]
fn assert_tape_valid(fixture: &CliFixture, server: &ScriptedModel) {
    assert_eq!(server.violations(), [""; 0]);
    fixture.assert_undamaged();
    let entries = fixture.entries();
    let calls = entries_of_kind(&entries, "tool_call");
    let calls = calls.iter().map(|entry| entry["payload"]["calls"].as_array().expect("calls").len());
    assert_eq!(calls.sum::<usize>(), entries_of_kind(&entries, "tool_result").len());
}

#[test]
fn a01_model_recovers_from_wrong_arguments_and_unknown_tools() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls_verbatim([
            ("a", "bash", "{\"cmd\": \"echo o"),
            ("b", "bash", "[1, 2]"),
            ("c", "bash", "{\"command\": \"echo one\"}"),
            ("d", "no_such_tool", "{}"),
            ("e", "bash", "{\"cmd\": \"echo fine\"}"),
        ]),
        ScriptedReply::text("now I know"),
    ]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "hello"]).succeeded().stdout, "now I know\n");
    let shown_results = tool_results(&server.requests()[1]);
    assert!(shown_results[0].starts_with("the arguments are not valid JSON: "), "{shown_results:?}");
    assert_eq!(shown_results[1], "the arguments must be a JSON object");
    assert!(
        shown_results[2].contains("invalid arguments for bash: ") && shown_results[2].contains("command"),
        "{shown_results:?}"
    );
    assert_eq!(shown_results[3..], ["there is no tool no_such_tool", "fine"]);
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a04_commands_for_people_do_not_exist_for_a_model() {
    let names = ["help", "model", "quit", "tape_reset"];
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls_verbatim(names.map(|name| (name, name, "{}"))),
        ScriptedReply::text("done"),
    ]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "hello"]).succeeded().stdout, "done\n");
    assert_eq!(tool_results(&server.requests()[1]), names.map(|name| format!("there is no tool {name}")));
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a01_hanging_tool_times_out_and_the_run_continues() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "sleep 1000", "timeout_seconds": 1}))]),
        ScriptedReply::text("it hung"),
    ]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "hello"]).succeeded().stdout, "it hung\n");
    assert!(tool_results(&server.requests()[1])[0].contains("1 second"), "{:?}", tool_results(&server.requests()[1]));
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a10_two_hundred_calls_in_one_step_get_results_in_order() {
    let place_of = |number: usize| format!("file-{number}.txt");
    let calls =
        (0..200).map(|number| (format!("call_{number}"), "fs_read".to_owned(), json!({"path": place_of(number)})));
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::tool_calls(calls), ScriptedReply::text("read them all")]);
    let fixture = CliFixture::with_model(&server);
    for number in 0..200 {
        std::fs::write(fixture.workspace().join(place_of(number)), format!("this is {number}.")).unwrap();
    }
    assert_eq!(fixture.capstan(&["run", "read"]).succeeded().stdout, "read them all\n");
    let shown_results = tool_results(&server.requests()[1]);
    assert_eq!(shown_results.len(), 200);
    for (number, text) in shown_results.iter().enumerate() {
        assert!(text.contains(&format!("this is {number}.")), "{number}: {text}");
    }
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a10_edits_of_one_file_in_one_step_run_in_order() {
    let mut calls = Vec::new();
    for file in ["one.txt", "two.txt"] {
        calls.push(("fs_write", json!({"path": file, "content": "0"})));
        for number in 0..20 {
            let path = if number % 2 == 0 { format!("./{file}") } else { file.to_owned() };
            let (old, new) = (number.to_string(), (number + 1).to_string());
            calls.push(("fs_edit", json!({"path": path, "old": old, "new": new})));
        }
        calls.push(("fs_read", json!({"path": file})));
    }
    let calls =
        calls.into_iter().enumerate().map(|(at, (tool, arguments))| (format!("c{at}"), tool.to_owned(), arguments));
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::tool_calls(calls), ScriptedReply::text("counted")]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "count"]).succeeded().stdout, "counted\n");
    let shown_results = tool_results(&server.requests()[1]);
    assert_eq!((shown_results[21].as_str(), shown_results[43].as_str()), ("20", "20"), "{shown_results:?}");
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a10_total_result_size_of_one_step_is_bounded() {
    let call = |number: usize| {
        let path = if number.is_multiple_of(4) { "photo.png" } else { "notes.txt" };
        (format!("call_{number}"), "fs_read".to_owned(), json!({ "path": path }))
    };
    let calls = move |_: &Value, answered: usize| match answered {
        0 => ScriptedReply::text("ready"),
        1 => ScriptedReply::tool_calls((0..200).map(call)),
        _ => ScriptedReply::text("seen them all"),
    };
    let server = ScriptedModel::start_blocking_with(calls);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_MODEL", "openai:gpt-5");
    let begin = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x04\0\0\0\x04\0";
    let photo: Vec<u8> = begin.iter().copied().chain(std::iter::repeat_n(7, 3_000_000)).collect();
    std::fs::write(fixture.workspace().join("photo.png"), photo).unwrap();
    std::fs::write(fixture.workspace().join("notes.txt"), "a line of notes\n".repeat(2000)).unwrap();
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_and_recv(&json!({"id": 1, "session": "s", "text": "hello"}));
    let before = peak_resident_kib(stdio.process_id());
    let answer = stdio.send_and_recv(&json!({"id": 2, "session": "s", "text": "look"}));
    assert_eq!(answer["text"], "seen them all");
    // Not a benchmark, but background for the bound: five runs took 251 to 313 MiB. Eight images at a time are read, encoded,
    // put into a data URL and searched for secrets (some 15 MB each), and the 12 MiB of results that a step shows exist at once in
    // the results, the journal, the commit, the view, the request, its record and its bytes. Without the bound, all fifty images
    // were shown, which took more than a gigabyte.
    let more = peak_resident_kib(stdio.process_id()) - before;
    assert!(more < 400 * 1024, "{more} KiB");
    stdio.close().succeeded();
    let shown_results = server.requests()[2].to_string();
    assert!(shown_results.len() < 24 * 1024 * 1024, "{} bytes", shown_results.len());
    assert_eq!(shown_results.matches("image left out: a step shows at most 12 MiB of images").count(), 47);
    assert_eq!(server.violations(), [""; 0]);
}

/// Peak resident memory of a process.
fn peak_resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn a02_persistent_overflow_fails_the_run_and_leaves_a_valid_tape() {
    let too_long = r#"{"error": {"message": "This model's maximum context length is 8192 tokens"}}"#;
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "echo one"}))]),
        ScriptedReply::status(400, too_long),
        // Two requests for a summary, and the request again.
        ScriptedReply::status(400, too_long),
        ScriptedReply::status(400, too_long),
        ScriptedReply::status(400, too_long),
        ScriptedReply::text("better"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan(&["run", "hello"]).refused("model-context-overflow", 1);
    assert!(output.stderr.contains("hint: "), "{output:?}");
    let entries = fixture.entries();
    let anchors: Vec<&Value> =
        entries_of_kind(&entries, "anchor").iter().map(|entry| &entry["payload"]["name"]).collect();
    assert_eq!(anchors, ["session/start", "auto_handoff/context_overflow"]);
    assert_eq!(
        fixture.capstan(&["run", "again"]).succeeded().stdout,
        "better\n",
        "the session continues from the anchor"
    );
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a01_x09_run_out_of_tokens_fails_and_keeps_its_text() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "echo one"}))])
            .with_text("Let me look.")
            .with_usage(90, 20),
        ScriptedReply::text("never"),
    ]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_MAX_RUN_TOKENS", "100");
    let output = fixture.capstan(&["run", "hello"]);
    let output = output.failed("max-run-tokens", 1);
    assert!(output.stderr.contains("hint: raise max_run_tokens"), "{output:?}");
    let entries = fixture.entries();
    let messages: Vec<&Value> =
        entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(messages.last(), Some(&&json!("Let me look.")));
    assert_tape_valid(&fixture, &server);
}

#[test]
fn a10_artifact_survives_the_process_that_created_it() {
    let barrier = ReplyBarrier::new();
    let paused = barrier.clone();
    let server = ScriptedModel::start_blocking_with(move |request, answered| {
        let preview = || tool_results(request).pop().expect("a result");
        match answered {
            0 => ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "seq 1 12000"}))]),
            1 => ScriptedReply::text("never heard").with_barrier(&paused),
            // The event of the dead process is recovered.
            2 => ScriptedReply::text("counted"),
            3 => {
                let tape = request["messages"].to_string();
                let (_, handle) = tape.split_once("in artifact ").expect("the preview is on the tape");
                let handle = handle.split_once(',').expect("its handle").0;
                ScriptedReply::tool_calls([(
                    "b",
                    "artifact_read",
                    json!({"artifact": handle, "offset": 30000, "limit": 60}),
                )])
            }
            _ => ScriptedReply::text(preview()),
        }
    });
    let fixture = CliFixture::with_model(&server);
    let mut process = fixture.command(&["run", "count"]).spawn().unwrap();
    wait_for_barrier(&barrier);
    process.kill().unwrap();
    process.wait().unwrap();
    barrier.release();
    let shown = fixture.capstan(&["run", "go on"]).succeeded().stdout;
    assert!(shown.contains("[bytes 30000 to 30060 of ") && shown.contains("\n6223\n"), "{shown}");
    let entries = fixture.entries();
    let artifact = &entries_named(&entries, "artifact.created")[0]["payload"]["data"];
    assert!(artifact["bytes"].as_u64().unwrap() > 32768, "{artifact}");
    assert!(fixture.capstan(&["tape", "show", "cli:local"]).data().len() < 100_000, "the full text is not shown");
}

#[test]
fn k04_subagent_of_a_dead_process_is_interrupted_and_not_called_again() {
    let barrier = ReplyBarrier::new();
    let paused = barrier.clone();
    let server = ScriptedModel::start_blocking_with(move |_, answered| match answered {
        0 => ScriptedReply::tool_calls([("a", "subagent", json!({"prompt": "wait here"}))]),
        1 => ScriptedReply::text("never heard").with_barrier(&paused),
        _ => ScriptedReply::text("hello again"),
    });
    let fixture = CliFixture::with_model(&server);
    let mut process = fixture.command(&["run", "first"]).spawn().unwrap();
    wait_for_barrier(&barrier);
    process.kill().unwrap();
    process.wait().unwrap();
    barrier.release();
    assert_eq!(fixture.capstan(&["run", "second"]).succeeded().stdout, "hello again\n");
    let runs = fixture.capstan(&["runs", "list", "--json"]).json();
    let runs: Vec<&Value> = runs.as_array().unwrap().iter().collect();
    let statuses: Vec<&Value> = runs.iter().map(|run| &run["status"]).collect();
    assert_eq!(statuses, ["completed", "interrupted", "interrupted"], "{runs:?}");
    let child = runs.iter().find(|run| run["parent"].is_string()).expect("a child");
    let parent = runs.iter().find(|run| run["run_id"] == child["parent"]).expect("its parent");
    assert_eq!(parent["session"], child["session"]);
    let request = server.requests().pop().expect("a request").to_string();
    assert!(request.contains("the call was interrupted and its outcome is unknown"), "{request}");
    let fork = child["tape"].as_str().expect("its fork");
    fixture.capstan(&["tape", "discard", fork]).refused("tape-fork-closed", 2);
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.assert_undamaged();
}

#[test]
fn k04_stream_shows_tool_calls_of_a_subagent_but_not_its_text() {
    let server = ScriptedModel::start_blocking_with(|request, answered| match answered {
        0 => ScriptedReply::tool_calls([("a", "subagent", json!({"prompt": "count"}))]),
        1 => ScriptedReply::tool_calls([("a", "bash", json!({"cmd": "seq 1 2000"}))])
            .with_reasoning("I count.")
            .with_usage(20, 3),
        2 => ScriptedReply::text("two thousand"),
        _ => ScriptedReply::text(tool_results(request).pop().expect("the reply of the subagent")),
    });
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&json!({"id": 1, "session": "s", "text": "how many?", "stream": true}));
    let mut seen = Vec::new();
    let end = loop {
        let line = stdio.recv_line();
        match line.get("event") {
            Some(event) => seen.push(event.clone()),
            None => break line,
        }
    };
    assert_eq!(end["text"], "two thousand");
    let of = |kind: &str| seen.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let (calls, results) = (of("tool_call"), of("tool_result"));
    let names: Vec<&Value> = calls.iter().map(|event| &event["call"]["function"]["name"]).collect();
    assert_eq!(names, ["subagent", "subagent/bash"]);
    assert!(calls[1]["call"]["function"]["arguments"].to_string().contains("seq 1 2000"));
    assert_ne!(calls[0]["call"]["id"], calls[1]["call"]["id"], "although the model reused an id");
    let paired: Vec<&Value> = results.iter().map(|event| &event["call_id"]).collect();
    assert_eq!(paired, [&calls[1]["call"]["id"], &calls[0]["call"]["id"]]);
    assert_eq!(results[0]["output"], json!({"content": "1 ...", "is_error": false}), "only the first line");
    assert_eq!(of("usage").len(), 4, "its usage is included");
    assert_eq!((of("reasoning").len(), of("final").len()), (0, 1), "{seen:?}");
    let output: String = of("text").iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(output, "two thousand", "once, by the parent");
    stdio.close().succeeded();
    let runs = fixture.capstan(&["runs", "list"]).lines();
    let (of, run) = runs[0].rsplit_once("  (of ").expect("the newest run is the subagent's");
    assert!(runs[1].starts_with(run.trim_end_matches(')')) && !of.starts_with(run), "{runs:?}");
}

#[test]
fn x02_run_cancelled_during_parallel_calls_leaves_a_valid_tape() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([
            ("a", "fs_read", json!({"path": "there.txt"})),
            ("b", "bash", json!({"cmd": "touch begun; sleep 1000"})),
            ("c", "fs_read", json!({"path": "there.txt"})),
        ]),
        ScriptedReply::text("again"),
    ]);
    let fixture = CliFixture::with_model(&server);
    std::fs::write(fixture.workspace().join("there.txt"), "content").unwrap();
    let process = fixture.command(&["run", "hello"]).spawn().unwrap();
    while !fixture.workspace().join("begun").exists() {
        std::thread::yield_now();
    }
    send_signal(process.id(), "INT");
    BinaryOutput::from(process.wait_with_output().unwrap()).failed("run-cancelled", 130);
    assert_eq!(entries_of_kind(&fixture.entries(), "tool_result").len(), 1, "completed results are recorded");
    assert_eq!(fixture.capstan(&["run", "again"]).succeeded().stdout, "again\n");
    assert_eq!(server.violations(), [""; 0]);
    let shown_results = server.requests()[1]["messages"].to_string();
    assert_eq!(shown_results.matches("the call was interrupted and its outcome is unknown").count(), 2);
}

/// A command that writes process ids to the file `pids`: its own, that of a process without environment, of one that left the
/// process group, and of one that left the group and lost its parent.
const RUNAWAY_COMMAND: &str = "echo $$ >> pids; env -i sleep 1000 & echo $! >> pids; setsid sleep 1000 & echo $! >> pids; \
    (setsid bash -c 'echo $$ >> pids; exec sleep 1000' &); exec sleep 1000";

/// Checks if a process is running. A killed process that was not reaped is not.
fn is_process_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[test]
fn x05_killing_the_host_ends_every_process_of_a_command() {
    for background in [false, true] {
        let barrier = ReplyBarrier::new();
        let paused = barrier.clone();
        let server = ScriptedModel::start_blocking_with(move |_, answered| match answered {
            0 => ScriptedReply::tool_calls([("a", "bash", json!({"cmd": RUNAWAY_COMMAND, "background": background}))]),
            _ => ScriptedReply::text("never heard").with_barrier(&paused),
        });
        let fixture = CliFixture::with_model(&server);
        let mut process = fixture.command(&["run", "go"]).spawn().unwrap();
        let pids = || std::fs::read_to_string(fixture.workspace().join("pids")).unwrap_or_default();
        while pids().lines().count() < 4 {
            std::thread::yield_now();
        }
        let pids = pids();
        assert!(pids.lines().all(is_process_running), "{pids}");
        process.kill().unwrap();
        process.wait().unwrap();
        for pid in pids.lines() {
            while is_process_running(pid) {
                std::thread::yield_now();
            }
        }
        barrier.release();
    }
}
