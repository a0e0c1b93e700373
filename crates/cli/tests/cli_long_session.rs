//! A long session with tools: the context stays valid, what a provider may cache stays as it was, and memory is flat.

mod cli_support;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, StdioServer};
use serde_json::{Value, json};

const TOTAL_TURNS: usize = 700;
/// After so many turns the model hands off, so that the context begins anew.
const TURNS_PER_HANDOFF: usize = 10;
/// How much memory a turn may leave behind, on the average. It leaves none; but an allocator is not exact, and what it needs
/// was seen to go up and down by five MiB in the turns between those that are compared.
const MAX_GROWTH_BYTES_PER_TURN: u64 = 32 * 1024;
/// When the host has all its threads, and the database has filled its caches, how much it needs at least in so many turns is looked at ...
const EARLY_TURNS: Range<usize> = 400..500;
/// ... and in as many at the end.
const LATE_TURNS: Range<usize> = 600..700;

/// The requests as a provider's cache sees them.
#[derive(Default)]
struct PromptCacheCheck {
    /// System prompt and tools of the first request.
    prefix: Option<String>,
    /// The messages of the request before, each as it was sent.
    previous_messages: Vec<String>,
    restarts: usize,
    violations: Vec<String>,
}

impl PromptCacheCheck {
    fn observe(&mut self, request: &Value, number: usize) {
        let messages: Vec<String> =
            request["messages"].as_array().expect("messages").iter().map(ToString::to_string).collect();
        let fixed = format!("{}{}", messages[0], request["tools"]);
        if self.prefix.get_or_insert_with(|| fixed.clone()) != &fixed {
            self.violations.push(format!("request {number}: another system prompt or other tools"));
        }
        // An anchor is the first message of the conversation: a new one, and only that, begins it anew.
        if self.previous_messages.get(1) != messages.get(1) {
            self.restarts += 1;
        } else if !messages.starts_with(&self.previous_messages) {
            self.violations.push(format!("request {number}: what was sent before was changed"));
        }
        self.previous_messages = messages;
    }
}

/// The newest message: what the model is to react to.
fn last_message(request: &Value) -> &Value {
    request["messages"].as_array().and_then(|messages| messages.last()).expect("a message")
}

/// The memory of a process that is its own, and no part of a file.
fn memory_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("its memory");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib * 1024
}

#[test]
fn p13_p14_a_session_of_seven_hundred_turns_with_tools() {
    let cache = Arc::new(Mutex::new(PromptCacheCheck::default()));
    let seen = Arc::clone(&cache);
    let mut turns = 0;
    let server = ScriptedModel::start_blocking_with(move |request, number| {
        seen.lock().unwrap().observe(request, number);
        let newest = last_message(request);
        if newest["role"] == "tool" || newest["content"].as_str().is_some_and(|text| text.starts_with("Continue")) {
            return ScriptedReply::text(format!("turn {turns} is done"));
        }
        turns += 1;
        let look = (format!("look_{turns}"), "fs_read".to_owned(), json!({"path": "notes.txt"}));
        if turns % TURNS_PER_HANDOFF == 0 {
            let handoff = json!({"name": format!("phase-{}", turns / TURNS_PER_HANDOFF), "summary": "went well"});
            return ScriptedReply::tool_calls([look, (format!("handoff_{turns}"), "tape_handoff".to_owned(), handoff)]);
        }
        ScriptedReply::tool_calls([look])
    });
    // What is freed goes back at once, so that what is left is what is held.
    let place = CliFixture::with_model(&server).set("MIMALLOC_PURGE_DELAY", "0");
    std::fs::write(place.workspace().join("notes.txt"), "some notes\n".repeat(20)).unwrap();
    let mut wire = StdioServer::start(&place);
    let mut memory = Vec::new();
    for turn in 1..=TOTAL_TURNS {
        let answer = wire.send_and_recv(&json!({"id": "t", "session": "long", "text": format!("turn {turn}")}));
        assert_eq!(answer["text"], format!("turn {turn} is done"), "{answer}");
        memory.push(memory_bytes(wire.process_id()));
    }
    let least = |turns: Range<usize>| memory[turns].iter().min().copied().expect("turns");
    let (early, late) = (least(EARLY_TURNS), least(LATE_TURNS));
    let more = late.saturating_sub(early) / (LATE_TURNS.start - EARLY_TURNS.start) as u64;
    assert!(more < MAX_GROWTH_BYTES_PER_TURN, "every turn leaves {more} bytes: from {early} to {late}");
    wire.close().succeeded();
    assert_eq!(server.violations(), [""; 0]);
    let cache = cache.lock().unwrap();
    assert_eq!(cache.violations, [""; 0]);
    assert_eq!(cache.restarts, 1 + TOTAL_TURNS / TURNS_PER_HANDOFF);
    place.assert_undamaged();
}
