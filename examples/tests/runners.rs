//! The runners of the examples, under bindings: through real events, on a real store, over restarts.

use std::path::Path;

use capstan::protocol::{ActorRef, Binding, BlobHash, Event, MessageRole, StateScope, Timestamp};
use capstan::tape::{Batch, DefaultView, Entry, EntryKind, Fact, KeyValueRecord, TapeSlice, View as _};
use capstan::{Capstan, Host, ServedEvent};
use capstan_examples::notebook::NotebookRunner;
use capstan_examples::rules::RulesRunner;
use serde_json::{Value, json};
use tempfile::TempDir;

const DEMO_INTRO: &str = "I am the demo model";

/// A host with both runners, in this home.
async fn start_host(home: &Path) -> Host {
    let builder = Capstan::builder().plugin(RulesRunner).plugin(NotebookRunner).workspace(home).home(home.join("home"));
    builder.set("model", "demo:").set("message_context", "false").start().await.unwrap()
}

async fn save_binding(host: &Host, binding: Value) {
    let binding: Binding = serde_json::from_value(binding).unwrap();
    host.bindings().save(&binding, &host.runners()).await.unwrap();
}

#[test]
fn g02_the_binding_that_the_documentation_shows_works_in_the_binary_it_names() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runners.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, from) = page.split_once("```toml\n").unwrap();
    let (example, _) = from.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let capstan = |arguments: &[&str], input: &str| {
        let mut command = assert_cmd::Command::cargo_bin("runners").unwrap();
        command.current_dir(folder.path()).env("CAPSTAN_HOME", folder.path().join("home"));
        command.args(arguments).write_stdin(input).assert().success().get_output().stdout.clone()
    };
    capstan(&["bindings", "set", "-"], example);
    let vote = json!({
        "event_type": "message.received", "source": "telegram", "conversation_id": "family",
        "actor": {"id": "7", "name": "Ann"}, "input": {"text": "vote tea"},
    });
    let served: Value = serde_json::from_slice(&capstan(&["events", "send", "-"], &vote.to_string())).unwrap();
    assert_eq!(served["output"], "tea has 1");
    let space = "[\"plugin:capstan/examples/rules\", \"conversation\", \"cli:family\"]";
    let kept = capstan(&["state", "set", space, "greeting", "\"hello\""], "");
    assert!(String::from_utf8(kept).unwrap().starts_with("set \"greeting\" in "), "as docs/state.md says");
}

/// The binding of `docs/runners.md`: everything on this channel goes by rules.
fn rules_binding() -> Value {
    json!({
        "binding_id": "club", "runner_id": RulesRunner::ID, "scope": {"channel": "cli"},
        "state_policy": {"enabled": true},
        "runner_config": {"rules": [
            {"word": "cheers", "does": "count", "says": "That is {count}."},
            {"word": "seen", "does": "count", "scope": "actor", "says": "{name} was here {count} times."},
            {"word": "remember", "does": "remember", "scope": "actor", "says": "Noted: {text}"},
            {"word": "notes", "does": "recall", "scope": "actor", "says": "{count} notes\n{list}"},
            {"word": "vote", "does": "vote", "says": "{text} has {count}"},
            {"word": "result", "does": "tally", "says": "{count} votes: {list}"},
            {"event_type": "group.member_joined", "does": "count", "says": "Welcome, {name}, number {count}!"},
        ]},
    })
}

fn notebook_binding() -> Value {
    json!({
        "binding_id": "diary", "runner_id": NotebookRunner::ID, "scope": {"channel": "cli"},
        "state_policy": {"enabled": true}, "runner_config": {"keep": 6},
    })
}

fn message(chat: &str, actor: &str, text: &str) -> Event {
    Event { actor: Some(ActorRef { id: actor.to_owned(), name: None }), ..Event::message("cli", chat, text) }
}

async fn send(host: &Host, chat: &str, actor: &str, text: &str) -> String {
    let served = host.serve(message(chat, actor, text)).await.unwrap();
    assert_eq!(served.error, None, "{text}");
    served.output
}

async fn chat_entries(host: &Host, chat: &str) -> Vec<Entry> {
    let session = format!("cli:{chat}");
    let tapes = host.tapes().list().await.unwrap();
    let mut of_session = tapes.into_iter().filter(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == session));
    let tape = of_session.next().unwrap().name;
    assert!(of_session.next().is_none(), "one session has one tape");
    host.tapes().read(&tape, &TapeSlice::all()).await.unwrap()
}

/// What was said in a chat, by whoever served it.
async fn chat_texts(host: &Host, chat: &str) -> Vec<String> {
    let messages = chat_entries(host, chat).await.into_iter().filter(|entry| entry.kind == EntryKind::Message);
    messages.map(|entry| entry.payload["content"].as_str().unwrap().to_owned()).collect()
}

/// How many keys are kept, by the scope that their space names.
async fn count_state_keys(host: &Host, scope: StateScope) -> u64 {
    let spaces = host.tapes().store().namespaces("state:").collect().await.unwrap();
    let of_scope = spaces.iter().filter(|space| space.space.contains(json!(scope).as_str().unwrap()));
    of_scope.map(|space| space.rows).sum()
}

#[tokio::test]
async fn g06_rules_keep_votes_for_a_conversation_and_notes_for_a_person_over_a_restart() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "Vote tea").await, "tea has 1");
    assert_eq!(send(&host, "family", "bob", "vote tea").await, "tea has 2");
    assert_eq!(send(&host, "family", "cid", "vote coffee").await, "coffee has 1");
    assert_eq!(send(&host, "family", "ann", "remember the milk").await, "Noted: the milk");
    assert_eq!(send(&host, "family", "bob", "vote").await, "What? Please say it in the same message.");
    host.stop().await.unwrap();

    let host = start_host(home.path()).await;
    assert_eq!(send(&host, "family", "bob", "vote coffee").await, "coffee has 2", "he changed his mind");
    assert_eq!(send(&host, "family", "ann", "result").await, "3 votes: coffee: 2, tea: 1");
    assert_eq!(send(&host, "work", "ann", "result").await, "0 votes: ", "that is another conversation");
    assert_eq!(send(&host, "work", "ann", "notes").await, "1 notes\n- the milk", "and the same person");
    assert_eq!(send(&host, "work", "bob", "notes").await, "0 notes\n");
    assert_eq!(
        (count_state_keys(&host, StateScope::Conversation).await, count_state_keys(&host, StateScope::Actor).await),
        (3, 1)
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a07_what_people_call_themselves_or_say_is_no_part_of_an_answers_form() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    let rule = |word: &str, does: &str, says: &str| json!({"word": word, "does": does, "says": says});
    let mut binding = rules_binding();
    binding["runner_config"]["rules"] = json!([
        rule("remember", "remember", "{name} said {text}"),
        rule("notes", "recall", "{name}: {list} ({what}"),
        rule("a", "count", "{count}"),
        rule("a/b", "count", "{count}"),
    ]);
    save_binding(&host, binding).await;
    assert_eq!(send(&host, "family", "{list}", "remember {count} {name}").await, "{list} said {count} {name}");
    assert_eq!(send(&host, "family", "{text}", "notes").await, "{text}: - {count} {name} ({what}");
    assert_eq!(send(&host, "family", "ann", "a/b").await, "1");
    assert_eq!(send(&host, "family", "ann", "a").await, "1", "a rule counts its own");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a07_rules_serve_what_is_no_message_and_say_nothing_where_none_fits() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, rules_binding()).await;
    for (name, number) in [("Ann", 1), ("Bob", 2)] {
        let joined = json!({
            "event_type": "group.member_joined", "source": "cli", "conversation_id": "family",
            "actor": {"id": name, "name": name}, "input": {},
        });
        let served = host.serve(Event::from_envelope(joined).unwrap()).await.unwrap();
        assert_eq!(served.output, format!("Welcome, {name}, number {number}!"));
    }
    let served: ServedEvent = host.serve(message("family", "ann", "good morning")).await.unwrap();
    assert_eq!((served.outcome.unwrap().name(), served.outbounds.len()), ("silent", 0));
    assert_eq!(chat_texts(&host, "family").await.pop().unwrap(), "good morning", "it was heard all the same");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_rules_that_do_not_fit_the_schema_are_refused_when_they_are_saved() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    let wrong = [
        json!({}),
        json!({"rules": []}),
        json!({"rules": [{"word": "x", "does": "dance", "says": ""}]}),
        json!({"rules": [{"does": "say", "says": ""}]}),
        json!({"rules": [{"word": "x", "event_type": "y", "does": "say", "says": ""}]}),
        json!({"rules": [{"word": "two words", "does": "say", "says": ""}]}),
        json!({"rules": [{"word": "x", "does": "count", "scope": "workspace", "says": ""}]}),
    ];
    for config in wrong {
        let binding = json!({"binding_id": "club", "runner_id": RulesRunner::ID, "runner_config": config});
        let binding: Binding = serde_json::from_value(binding).unwrap();
        let refused = host.bindings().save(&binding, &host.runners()).await.unwrap_err();
        assert_eq!(refused.code(), "binding-invalid", "{refused}");
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g06_rules_that_may_not_keep_state_fail_in_so_many_words() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    let mut binding = rules_binding();
    binding["state_policy"]["scopes"] = json!(["conversation"]);
    save_binding(&host, binding).await;
    assert_eq!(send(&host, "family", "ann", "cheers").await, "That is 1.");
    let served = host.serve(message("family", "ann", "seen")).await.unwrap();
    assert_eq!(served.outcome.unwrap().name(), "failed");
    assert_eq!(count_state_keys(&host, StateScope::Actor).await, 0);
    host.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g06_t13_nothing_is_lost_when_many_conversations_count_at_once() {
    const CHAT_COUNT: usize = 8;
    const EVENTS_PER_CHAT: usize = 6;
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, rules_binding()).await;
    let events = (0..CHAT_COUNT * EVENTS_PER_CHAT).flat_map(|number| {
        let chat = format!("chat-{}", number % CHAT_COUNT);
        ["cheers", "seen"].map(|word| host.serve(message(&chat, "ann", word)))
    });
    for served in futures::future::join_all(events).await {
        assert_eq!(served.unwrap().outcome.unwrap().name(), "replied");
    }
    for chat in 0..CHAT_COUNT {
        let counted = send(&host, &format!("chat-{chat}"), "ann", "cheers").await;
        assert_eq!(counted, format!("That is {}.", EVENTS_PER_CHAT + 1), "of this conversation");
    }
    let seen = send(&host, "elsewhere", "ann", "seen").await;
    assert_eq!(
        seen,
        format!("ann was here {} times.", CHAT_COUNT * EVENTS_PER_CHAT + 1),
        "of this person, in all of them"
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_a_session_goes_to_the_rules_and_back_on_one_tape() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "cheers").await, "That is 1.");
    host.bindings().remove(&"club".into()).await.unwrap();
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three", "it knows what was said before");
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "cheers").await, "That is 2.", "what was kept is still there");

    let (said, all) = (chat_texts(&host, "family").await, chat_entries(&host, "family").await);
    let texts: Vec<&str> = said.iter().map(|text| text.lines().next_back().unwrap()).collect();
    let whole = ["one", "You said: one", "cheers", "That is 1.", "three", "You said: three", "cheers", "That is 2."];
    assert_eq!(texts, whole);
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    host.stop().await.unwrap();
}

/// The notebooks that are kept: the names they are kept under, and their pages.
async fn stored_notebooks(host: &Host) -> Vec<(String, Vec<Value>)> {
    let store = host.tapes().store();
    let mut notebooks = Vec::new();
    for kept in
        store.key_value_page(&store.namespaces("storage:").collect().await.unwrap()[0].space, None, 10).await.unwrap()
    {
        let blob: BlobHash = serde_json::from_value(kept.value["own"].clone()).unwrap();
        let blob = store.blob(&blob).await.unwrap().unwrap();
        let bytes = usize::try_from(kept.value["bytes"].as_u64().unwrap()).unwrap();
        notebooks.push((kept.key, serde_json::from_slice(&blob[..bytes]).unwrap()));
    }
    notebooks
}

#[tokio::test]
async fn g08_where_there_is_no_room_the_notebook_that_was_not_written_for_the_longest_time_goes() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, notebook_binding()).await;
    send(&host, "family", "ann", "one").await;
    let store = host.tapes().store();
    let space = store.namespaces("storage:").collect().await.unwrap().remove(0).space;
    let full = (0..999_u16).map(|number| {
        let (space, key, value) = (space.clone(), format!("old-{number:03}"), json!({"hash": "x", "bytes": 1}));
        Fact::PutKeyValue(KeyValueRecord { space, key, value, at: Timestamp::from_millis(i64::from(number)), by: None })
    });
    store.commit(Batch { facts: full.collect(), ..Batch::new() }).await.unwrap();
    assert!(send(&host, "work", "ann", "one").await.starts_with(DEMO_INTRO), "there was room after all");
    assert_eq!(store.key_value(&space, "old-000").await.unwrap(), None);
    assert!(store.key_value(&space, "old-001").await.unwrap().is_some(), "no more than necessary");
    assert_eq!(send(&host, "family", "ann", "two").await, "You said: two");
    let family = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.session == Some("cli:family".into()));
    let forget = Fact::RemoveKeyValue {
        namespace: space,
        key: family.unwrap().name.to_string(),
        removed_at: Timestamp::from_millis(0),
    };
    store.commit(Batch { facts: vec![forget], ..Batch::new() }).await.unwrap();
    let anew = send(&host, "family", "ann", "three").await;
    assert!(anew.starts_with(DEMO_INTRO), "a conversation whose notebook is gone begins anew: {anew}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g08_a_notebook_is_its_own_context_over_a_restart_and_the_host_has_a_pointer() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, notebook_binding()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    assert_eq!(send(&host, "family", "ann", "two").await, "You said: two", "it read its notebook");
    host.stop().await.unwrap();

    let host = start_host(home.path()).await;
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three");
    let store = host.tapes().store();
    let spaces = store.namespaces("state:").collect().await.unwrap();
    let [state] = &spaces[..] else { panic!("one space, not {spaces:?}") };
    let kept = store.key_value_page(&state.space, None, 10).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].key.as_str(), &kept[0].value), ("notebook", &json!({"number": 3})), "a pointer and no more");
    assert_eq!(send(&host, "family", "ann", "four").await, "You said: four");
    let [(_, pages)] = &stored_notebooks(&host).await[..] else { panic!("one notebook") };
    assert_eq!(pages.len(), 2, "the newest page, and the one before it");
    let newest = pages[1]["messages"].as_array().unwrap();
    assert_eq!((newest.len(), &newest[0]["content"]), (6, &json!("two")), "as many as the binding says");
    assert_eq!(chat_texts(&host, "family").await.len(), 8, "the tape has all of it");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_g08_a_session_goes_to_the_notebook_and_back_on_one_tape() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    save_binding(&host, notebook_binding()).await;
    let second = send(&host, "family", "ann", "two").await;
    assert!(second.starts_with(DEMO_INTRO), "it was told nothing of what came before: {second}");
    host.bindings().remove(&"diary".into()).await.unwrap();
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three");
    save_binding(&host, notebook_binding()).await;
    assert_eq!(send(&host, "family", "ann", "four").await, "You said: four", "its notebook goes on");

    let tape = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.session == Some("cli:family".into()));
    let window = host.tapes().window(&tape.unwrap().name).await.unwrap();
    let heard = DefaultView.messages(&window).into_iter().filter(|message| message.role == MessageRole::User);
    let heard: Vec<String> = heard.map(|message| message.content.text()).collect();
    assert_eq!(heard, ["one", "two", "three", "four"], "the agent would read all of it");
    host.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_t13_each_conversation_has_a_notebook_of_its_own() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, notebook_binding()).await;
    let chats: Vec<String> = (0..8).map(|number| format!("chat-{number}")).collect();
    futures::future::join_all(chats.iter().map(|chat| send(&host, chat, "ann", "one"))).await;
    let seconds = futures::future::join_all(chats.iter().map(|chat| send(&host, chat, "ann", chat))).await;
    for (chat, second) in chats.iter().zip(seconds) {
        assert_eq!(second, format!("You said: {chat}"));
    }
    assert_eq!(count_state_keys(&host, StateScope::Conversation).await, 8);
    host.stop().await.unwrap();
}
