//! A long session with tools: the context stays valid, what a provider may cache stays as it was, and memory is flat.

mod cli_support;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use capstan_testing::{Reply, ScriptedModel};
use cli_support::{Place, Wire};
use serde_json::{Value, json};

const TURNS: usize = 700;
/// After so many turns the model hands off, so that the context begins anew.
const PHASE: usize = 10;
/// How much memory a turn may leave behind, on the average. It leaves none; but an allocator is not exact, and what it needs
/// was seen to go up and down by five MiB in the turns between those that are compared.
const MORE_BYTES: u64 = 32 * 1024;
/// When the host has all its threads, and the database has filled its caches, how much it needs at least in so many turns is looked at ...
const EARLY: Range<usize> = 400..500;
/// ... and in as many at the end.
const LATE: Range<usize> = 600..700;

/// The requests as a provider's cache sees them.
#[derive(Default)]
struct Cache {
    /// System prompt and tools of the first request.
    fixed: Option<String>,
    /// The messages of the request before, each as it was sent.
    before: Vec<String>,
    begun_anew: usize,
    broken: Vec<String>,
}

impl Cache {
    fn see(&mut self, request: &Value, number: usize) {
        let messages: Vec<String> =
            request["messages"].as_array().expect("messages").iter().map(ToString::to_string).collect();
        let fixed = format!("{}{}", messages[0], request["tools"]);
        if self.fixed.get_or_insert_with(|| fixed.clone()) != &fixed {
            self.broken.push(format!("request {number}: another system prompt or other tools"));
        }
        // An anchor is the first message of the conversation: a new one, and only that, begins it anew.
        if self.before.get(1) != messages.get(1) {
            self.begun_anew += 1;
        } else if !messages.starts_with(&self.before) {
            self.broken.push(format!("request {number}: what was sent before was changed"));
        }
        self.before = messages;
    }
}

/// The newest message: what the model is to react to.
fn newest(request: &Value) -> &Value {
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
    let cache = Arc::new(Mutex::new(Cache::default()));
    let seen = Arc::clone(&cache);
    let mut turns = 0;
    let server = ScriptedModel::start_blocking_with(move |request, number| {
        seen.lock().unwrap().see(request, number);
        let newest = newest(request);
        if newest["role"] == "tool" || newest["content"].as_str().is_some_and(|text| text.starts_with("Continue")) {
            return Reply::text(format!("turn {turns} is done"));
        }
        turns += 1;
        let look = (format!("look_{turns}"), "fs_read".to_owned(), json!({"path": "notes.txt"}));
        if turns % PHASE == 0 {
            let handoff = json!({"name": format!("phase-{}", turns / PHASE), "summary": "went well"});
            return Reply::tool_calls([look, (format!("handoff_{turns}"), "tape_handoff".to_owned(), handoff)]);
        }
        Reply::tool_calls([look])
    });
    // What is freed goes back at once, so that what is left is what is held.
    let place = Place::with_model(&server).set("MIMALLOC_PURGE_DELAY", "0");
    std::fs::write(place.workspace().join("notes.txt"), "some notes\n".repeat(20)).unwrap();
    let mut wire = Wire::start(&place);
    let mut memory = Vec::new();
    for turn in 1..=TURNS {
        let answer = wire.answer_to(&json!({"id": "t", "session": "long", "text": format!("turn {turn}")}));
        assert_eq!(answer["text"], format!("turn {turn} is done"), "{answer}");
        memory.push(memory_bytes(wire.process_id()));
    }
    let least = |turns: Range<usize>| memory[turns].iter().min().copied().expect("turns");
    let (early, late) = (least(EARLY), least(LATE));
    let more = late.saturating_sub(early) / (LATE.start - EARLY.start) as u64;
    assert!(more < MORE_BYTES, "every turn leaves {more} bytes: from {early} to {late}");
    wire.end().succeeded();
    assert_eq!(server.violations(), [""; 0]);
    let cache = cache.lock().unwrap();
    assert_eq!(cache.broken, [""; 0]);
    assert_eq!(cache.begun_anew, 1 + TURNS / PHASE);
    place.assert_undamaged();
}
