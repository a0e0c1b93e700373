//! P13: requests derived from any tape, cut at any entry, are valid for every provider.

use std::sync::Arc;

use crate::support::random::{TapeStep, anchor, history};
use crate::support::{assistant, calls, grammar, name, result, run, user, write};
use capstan_protocol::{ChatMessage, EntryId, TapeName};
use capstan_tape::{DefaultView, EntryRef, ForkState, MemoryStore, StoreError, TapeRepository, conversation};
use proptest::prelude::*;

/// Tape under test, and its open forks.
struct TapeFixture {
    tapes: TapeRepository,
    open_tapes: Vec<TapeName>,
    fork_count: usize,
}

impl TapeFixture {
    async fn new() -> Self {
        let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
        write(&tapes, &name("t"), []).await;
        Self { tapes, open_tapes: vec![name("t")], fork_count: 0 }
    }

    fn current(&self) -> TapeName {
        self.open_tapes.last().unwrap().clone()
    }

    async fn apply(&mut self, step: TapeStep) {
        let tape = self.current();
        let head = self.tapes.record(&tape).await.unwrap().unwrap().head;
        let back = |count: usize| EntryId(head.0.saturating_sub(count as u64));
        match step {
            TapeStep::Append(draft) => drop(write(&self.tapes, &tape, [draft]).await),
            TapeStep::Anchor(names) => {
                let names = names.into_iter().map(|count| EntryRef::Id(back(count))).collect();
                write(&self.tapes, &tape, [anchor(names)]).await;
            }
            TapeStep::Fork(count) => {
                self.fork_count += 1;
                let fork = name(&format!("f{}", self.fork_count));
                self.tapes.fork(&tape, &fork, Some(back(count))).await.unwrap();
                self.open_tapes.push(fork);
            }
            TapeStep::Merge if self.open_tapes.len() > 1 => match self.tapes.merge(&tape).await {
                Ok(_) => drop(self.open_tapes.pop()),
                Err(StoreError::OpenToolCall { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            TapeStep::Discard if self.open_tapes.len() > 1 => {
                self.tapes.discard(&tape).await.unwrap();
                self.open_tapes.pop();
            }
            TapeStep::Merge | TapeStep::Discard => {}
            TapeStep::Reset => self.tapes.reset(&tape, false).await.unwrap(),
        }
    }

    /// Request that a model would receive now.
    async fn model_request(&self, tape: &TapeName) -> Vec<ChatMessage> {
        let window = self.tapes.window(tape).await.unwrap();
        conversation::normalize_request(DefaultView.messages(&window))
    }
}

proptest! {
    /// A crash and a new turn may follow every step, so the request is checked after each of them.
    #[test]
    fn p13_every_request_is_valid_for_every_provider(history in history()) {
        run(async {
            let mut tape = TapeFixture::new().await;
            for step in history {
                tape.apply(step).await;
                for open in tape.open_tapes.clone() {
                    let request = tape.model_request(&open).await;
                    let found = grammar::violations(&request);
                    prop_assert!(found.is_empty(), "{found:#?}\n{request:#?}");
                    let again = conversation::normalize_request(request.clone());
                    prop_assert_eq!(again, request, "a valid request is not changed");
                }
            }
            Ok(())
        })?;
    }

    /// A custom view may omit messages at both ends.
    #[test]
    fn p13_any_part_of_a_view_makes_a_valid_request(history in history(), cut in any::<(prop::sample::Index, prop::sample::Index)>()) {
        run(async {
            let mut tape = TapeFixture::new().await;
            for step in history {
                tape.apply(step).await;
            }
            let window = tape.tapes.window(&tape.current()).await.unwrap();
            let messages = DefaultView.messages(&window);
            let (begin, end) = (cut.0.index(messages.len() + 1), cut.1.index(messages.len() + 1));
            let part = messages[begin.min(end)..begin.max(end)].to_vec();
            let found = grammar::violations(&conversation::normalize_request(part));
            prop_assert!(found.is_empty(), "{found:#?}");
            Ok(())
        })?;
    }

    /// A selector of a plugin may repeat, reorder and omit messages.
    #[test]
    fn p13_any_selection_of_messages_makes_a_valid_request(history in history(), picks in any::<Vec<prop::sample::Index>>()) {
        run(async {
            let mut tape = TapeFixture::new().await;
            for step in history {
                tape.apply(step).await;
            }
            let window = tape.tapes.window(&tape.current()).await.unwrap();
            let messages = DefaultView.messages(&window);
            let picks = picks.iter().filter(|_| !messages.is_empty());
            let selected = picks.map(|pick| pick.get(&messages).clone()).collect();
            let found = grammar::violations(&conversation::normalize_request(selected));
            prop_assert!(found.is_empty(), "{found:#?}");
            Ok(())
        })?;
    }
}

#[test]
fn p13_grammar_checker_finds_violations() {
    let call = |id: &str| ChatMessage::from_tool_calls(vec![capstan_protocol::ToolCall::new(id, "bash", "{}")]);
    let result = |id: &str| ChatMessage::tool_result(id, "bash", "done");
    let user = ChatMessage::user("go");
    let is_invalid = |request: &[ChatMessage]| !grammar::violations(request).is_empty();
    assert!(!is_invalid(&[user.clone(), call("a"), result("a")]));
    assert!(is_invalid(&[]));
    assert!(is_invalid(&[user.clone(), ChatMessage::assistant("ends here")]));
    assert!(is_invalid(&[user.clone(), call("a")]));
    assert!(is_invalid(&[user.clone(), call("a"), user.clone()]));
    assert!(is_invalid(&[user.clone(), call("a"), user.clone(), result("a")]));
    assert!(is_invalid(&[user.clone(), result("a")]));
    assert!(is_invalid(&[user.clone(), call("a"), result("b")]));
    assert!(is_invalid(&[user.clone(), call("a"), result("a"), result("a")]));
    assert!(is_invalid(&[user.clone(), call("a"), result("a"), call("a"), result("a")]));
    assert!(is_invalid(&[call("a"), result("a")]));
    assert!(is_invalid(&[ChatMessage::assistant("first"), call("a"), result("a")]));
}

#[tokio::test]
async fn p13_merge_never_separates_a_call_from_its_result() {
    let mut tape = TapeFixture::new().await;
    for draft in [user("go"), calls(&["a", "b"]), result("a", "one")] {
        tape.apply(TapeStep::Append(draft)).await;
    }
    tape.apply(TapeStep::Fork(0)).await;
    let fork = tape.current();
    for draft in [user("aside"), calls(&["a"]), result("a", "inside"), assistant("done aside")] {
        tape.apply(TapeStep::Append(draft)).await;
    }
    tape.apply(TapeStep::Merge).await;
    assert_eq!(tape.current(), fork, "the parent's call b is still open");
    write(&tape.tapes, &name("t"), [result("b", "two")]).await;
    tape.apply(TapeStep::Merge).await;
    let state = tape.tapes.record(&fork).await.unwrap().unwrap().fork.unwrap().state;
    assert_eq!(state, ForkState::Merged);
    let request = tape.model_request(&name("t")).await;
    let texts: Vec<String> = request.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["go", "", "one", "two", "aside", "", "inside", "done aside", conversation::CONTINUE_PROMPT]);
}
