//! A long session with tools: the context stays valid, cacheable prefixes stay unchanged, and memory stays flat.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::support::{CliFixture, StdioServer};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Number of turns in CI, enough for several handoffs.
const SHORT_SESSION_TURNS: usize = 45;
/// Number of turns of `make soak`, which measures memory too.
const LONG_SESSION_TURNS: usize = 700;
/// Number of turns between handoffs, each of which starts a new context.
const TURNS_PER_HANDOFF: usize = 10;
/// Maximum average growth of memory per turn. Turns leak nothing, but the allocator is not exact: memory was seen to vary by
/// five MiB between the compared turns.
const MAX_GROWTH_BYTES_PER_TURN: u64 = 32 * 1024;
/// First window of turns whose minimum memory is measured, after threads have started and database caches are full.
const EARLY_TURNS: Range<usize> = 400..500;
/// Last window of turns whose minimum memory is measured.
const LATE_TURNS: Range<usize> = 600..700;

/// Requests as seen by a provider's prefix cache.
#[derive(Default)]
struct PromptCacheCheck {
    /// System prompt and tools of the first request.
    prefix: Option<String>,
    /// Messages of the previous request, as sent.
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
        // The first message of the conversation is an anchor: only a new anchor restarts it.
        if self.previous_messages.get(1) != messages.get(1) {
            self.restarts += 1;
        } else if !messages.starts_with(&self.previous_messages) {
            self.violations.push(format!("request {number}: what was sent before was changed"));
        }
        self.previous_messages = messages;
    }
}

/// The newest message, which the model replies to.
fn last_message(request: &Value) -> &Value {
    request["messages"].as_array().and_then(|messages| messages.last()).expect("a message")
}

/// Anonymous memory of a process.
fn memory_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("its memory");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib * 1024
}

/// Runs a session and checks each request; returns the memory of the process after each turn.
fn run_session(total_turns: usize) -> Vec<u64> {
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
    // Freed memory is returned at once, so that the rest is in use.
    let fixture = CliFixture::with_model(&server).set("MIMALLOC_PURGE_DELAY", "0");
    std::fs::write(fixture.workspace().join("notes.txt"), "some notes\n".repeat(20)).unwrap();
    let mut stdio = StdioServer::start(&fixture);
    let mut memory = Vec::new();
    for turn in 1..=total_turns {
        let answer = stdio.send_and_recv(&json!({"id": "t", "session": "long", "text": format!("turn {turn}")}));
        assert_eq!(answer["text"], format!("turn {turn} is done"), "{answer}");
        memory.push(memory_bytes(stdio.process_id()));
    }
    stdio.close().succeeded();
    assert_eq!(server.violations(), [""; 0]);
    let cache = cache.lock().unwrap();
    assert_eq!(cache.violations, [""; 0]);
    assert_eq!(cache.restarts, 1 + total_turns / TURNS_PER_HANDOFF);
    fixture.assert_undamaged();
    memory
}

#[test]
fn p13_p14_p16_session_with_handoffs_has_stable_prefixes() {
    run_session(SHORT_SESSION_TURNS);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn p13_p14_p16_soak_session_of_seven_hundred_turns_has_stable_memory() {
    let memory = run_session(LONG_SESSION_TURNS);
    let least = |turns: Range<usize>| memory[turns].iter().min().copied().expect("turns");
    let (early, late) = (least(EARLY_TURNS), least(LATE_TURNS));
    let more = late.saturating_sub(early) / (LATE_TURNS.start - EARLY_TURNS.start) as u64;
    assert!(more < MAX_GROWTH_BYTES_PER_TURN, "every turn leaks {more} bytes: from {early} to {late}");
}
