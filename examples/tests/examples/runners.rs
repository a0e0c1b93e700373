//! Example runners under bindings: real events, a real store, restarts.

use std::path::Path;

use capstan::protocol::{ActorRef, Binding, BlobHash, Event, MessageRole, StateScope, Timestamp};
use capstan::tape::{Batch, DefaultView, Entry, EntryKind, Fact, KeyValueRecord, TapeSlice};
use capstan::{Capstan, Host, ServedEvent};
use capstan_examples::notebook::NotebookRunner;
use capstan_examples::rules::RulesRunner;
use serde_json::{Value, json};
use tempfile::TempDir;

const DEMO_INTRO: &str = "I am the demo model";

/// Starts a host with both runners.
async fn start_host(home: &Path) -> Host {
    let builder = Capstan::builder().plugin(RulesRunner).plugin(NotebookRunner).workspace(home).home(home.join("home"));
    builder.set("model", "demo:").set("message_context", "false").start().await.unwrap()
}

async fn save_binding(host: &Host, binding: Value) {
    let binding: Binding = serde_json::from_value(binding).unwrap();
    host.bindings().save(&binding, &host.runners()).await.unwrap();
}

#[test]
fn g02_documented_binding_works_in_the_documented_binary() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runners.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, after_fence) = page.split_once("```toml\n").unwrap();
    let (example, _) = after_fence.split_once("```").unwrap();
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
    let namespace = "[\"plugin:capstan/rules/runner\", \"conversation\", \"cli:family\"]";
    let stored = capstan(&["state", "set", namespace, "greeting", "\"hello\""], "");
    assert!(String::from_utf8(stored).unwrap().starts_with("set \"greeting\" in "), "as docs/state.md says");
}

/// Binding of `docs/runners.md`: all events of this channel are served by rules.
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
    Event {
        actor: Some(ActorRef { id: actor.to_owned(), name: None, kind: None }),
        ..Event::message("cli", chat, text)
    }
}

async fn send(host: &Host, chat: &str, actor: &str, text: &str) -> String {
    let served = host.serve(message(chat, actor, text)).await.unwrap();
    assert_eq!(served.error, None, "{text}");
    served.output
}

async fn chat_entries(host: &Host, chat: &str) -> Vec<Entry> {
    let session = format!("cli:{chat}");
    let tapes = host.tapes().list().await.unwrap();
    let mut session_tapes =
        tapes.into_iter().filter(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == session));
    let tape = session_tapes.next().unwrap().name;
    assert!(session_tapes.next().is_none(), "one session has one tape");
    host.tapes().read(&tape, &TapeSlice::all()).await.unwrap()
}

/// Returns the messages of a chat, whichever runner served it.
async fn chat_texts(host: &Host, chat: &str) -> Vec<String> {
    let messages = chat_entries(host, chat).await.into_iter().filter(|entry| entry.kind == EntryKind::Message);
    messages.map(|entry| entry.payload["content"].as_str().unwrap().to_owned()).collect()
}

/// Counts the stored keys of a scope.
async fn count_state_keys(host: &Host, scope: StateScope) -> u64 {
    let namespaces = host.tapes().store().namespaces("state:").collect().await.unwrap();
    let in_scope = namespaces.iter().filter(|namespace| namespace.space.contains(json!(scope).as_str().unwrap()));
    in_scope.map(|namespace| namespace.rows).sum()
}

#[tokio::test]
async fn g06_votes_of_a_conversation_and_notes_of_a_person_survive_a_restart() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "Vote tea").await, "tea has 1");
    assert_eq!(send(&host, "family", "bob", "vote tea").await, "tea has 2");
    assert_eq!(send(&host, "family", "cid", "vote coffee").await, "coffee has 1");
    assert_eq!(send(&host, "family", "ann", "remember the milk").await, "Noted: the milk");
    assert_eq!(send(&host, "family", "bob", "vote").await, "Please add the text to the same message.");
    host.stop().await.unwrap();

    let host = start_host(home.path()).await;
    assert_eq!(send(&host, "family", "bob", "vote coffee").await, "coffee has 2", "the second vote replaces the first");
    assert_eq!(send(&host, "family", "ann", "result").await, "3 votes: coffee: 2, tea: 1");
    assert_eq!(send(&host, "work", "ann", "result").await, "0 votes: ", "another conversation");
    assert_eq!(send(&host, "work", "ann", "notes").await, "1 notes\n- the milk", "the same person");
    assert_eq!(send(&host, "work", "bob", "notes").await, "0 notes\n");
    assert_eq!(
        (count_state_keys(&host, StateScope::Conversation).await, count_state_keys(&host, StateScope::Actor).await),
        (3, 1)
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a07_names_and_texts_are_not_interpreted_as_template() {
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
    assert_eq!(send(&host, "family", "ann", "a").await, "1", "each rule has its own count");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a07_rules_serve_other_events_and_stay_silent_without_a_match() {
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
    assert_eq!(chat_texts(&host, "family").await.pop().unwrap(), "good morning", "the message is on the tape");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_rules_that_violate_the_schema_are_refused_on_save() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    let invalid_configs = [
        json!({}),
        json!({"rules": []}),
        json!({"rules": [{"word": "x", "does": "dance", "says": ""}]}),
        json!({"rules": [{"does": "say", "says": ""}]}),
        json!({"rules": [{"word": "x", "event_type": "y", "does": "say", "says": ""}]}),
        json!({"rules": [{"word": "two words", "does": "say", "says": ""}]}),
        json!({"rules": [{"word": "x", "does": "count", "scope": "workspace", "says": ""}]}),
    ];
    for config in invalid_configs {
        let binding = json!({"binding_id": "club", "runner_id": RulesRunner::ID, "runner_config": config});
        let binding: Binding = serde_json::from_value(binding).unwrap();
        let error = host.bindings().save(&binding, &host.runners()).await.unwrap_err();
        assert_eq!(error.code(), "binding-invalid", "{error}");
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g06_rules_without_permission_for_state_fail() {
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
async fn g06_t13_concurrent_conversations_lose_no_count() {
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
        let reply = send(&host, &format!("chat-{chat}"), "ann", "cheers").await;
        assert_eq!(reply, format!("That is {}.", EVENTS_PER_CHAT + 1), "count of this conversation");
    }
    let seen = send(&host, "elsewhere", "ann", "seen").await;
    assert_eq!(
        seen,
        format!("ann was here {} times.", CHAT_COUNT * EVENTS_PER_CHAT + 1),
        "count of this person in all conversations"
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_session_switches_to_rules_and_back_on_one_tape() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "cheers").await, "That is 1.");
    host.bindings().remove(&"club".into()).await.unwrap();
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three", "it knows the earlier messages");
    save_binding(&host, rules_binding()).await;
    assert_eq!(send(&host, "family", "ann", "cheers").await, "That is 2.", "the stored count is still there");

    let (texts_on_tape, all) = (chat_texts(&host, "family").await, chat_entries(&host, "family").await);
    let texts: Vec<&str> = texts_on_tape.iter().map(|text| text.lines().next_back().unwrap()).collect();
    let expected = ["one", "You said: one", "cheers", "That is 1.", "three", "You said: three", "cheers", "That is 2."];
    assert_eq!(texts, expected);
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    host.stop().await.unwrap();
}

/// Returns the stored notebooks: their names and pages.
async fn stored_notebooks(host: &Host) -> Vec<(String, Vec<Value>)> {
    let store = host.tapes().store();
    let mut notebooks = Vec::new();
    for stored in
        store.key_value_page(&store.namespaces("storage:").collect().await.unwrap()[0].space, None, 10).await.unwrap()
    {
        let blob: BlobHash = serde_json::from_value(stored.value["own"].clone()).unwrap();
        let blob = store.blob(&blob).await.unwrap().unwrap();
        let bytes = usize::try_from(stored.value["bytes"].as_u64().unwrap()).unwrap();
        notebooks.push((stored.key, serde_json::from_slice(&blob[..bytes]).unwrap()));
    }
    notebooks
}

#[tokio::test]
async fn g08_full_storage_evicts_the_least_recently_written_notebook() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, notebook_binding()).await;
    send(&host, "family", "ann", "one").await;
    let store = host.tapes().store();
    let namespace = store.namespaces("storage:").collect().await.unwrap().remove(0).space;
    let full = (0..999_u16).map(|number| {
        let (space, key, value) = (namespace.clone(), format!("old-{number:03}"), json!({"hash": "x", "bytes": 1}));
        Fact::PutKeyValue(KeyValueRecord { space, key, value, at: Timestamp::from_millis(i64::from(number)), by: None })
    });
    store.commit(Batch { facts: full.collect(), ..Batch::new() }).await.unwrap();
    assert!(send(&host, "work", "ann", "one").await.starts_with(DEMO_INTRO), "space was made");
    assert_eq!(store.key_value(&namespace, "old-000").await.unwrap(), None);
    assert!(store.key_value(&namespace, "old-001").await.unwrap().is_some(), "only one was deleted");
    assert_eq!(send(&host, "family", "ann", "two").await, "You said: two");
    let family = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.session == Some("cli:family".into()));
    let forget = Fact::RemoveKeyValue {
        namespace,
        key: family.unwrap().name.to_string(),
        removed_at: Timestamp::from_millis(0),
    };
    store.commit(Batch { facts: vec![forget], ..Batch::new() }).await.unwrap();
    let restarted = send(&host, "family", "ann", "three").await;
    assert!(restarted.starts_with(DEMO_INTRO), "a conversation without its notebook starts over: {restarted}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g08_notebook_context_survives_a_restart_with_a_pointer_in_the_host() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    save_binding(&host, notebook_binding()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    assert_eq!(send(&host, "family", "ann", "two").await, "You said: two", "it read its notebook");
    host.stop().await.unwrap();

    let host = start_host(home.path()).await;
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three");
    let store = host.tapes().store();
    let namespaces = store.namespaces("state:").collect().await.unwrap();
    let [state] = &namespaces[..] else { panic!("one namespace, not {namespaces:?}") };
    let stored = store.key_value_page(&state.space, None, 10).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].key.as_str(), &stored[0].value), ("notebook", &json!({"number": 3})), "only a pointer");
    assert_eq!(send(&host, "family", "ann", "four").await, "You said: four");
    let [(_, pages)] = &stored_notebooks(&host).await[..] else { panic!("one notebook") };
    assert_eq!(pages.len(), 2, "the newest page and the previous one");
    let newest = pages[1]["messages"].as_array().unwrap();
    assert_eq!((newest.len(), &newest[0]["content"]), (6, &json!("two")), "limited by the binding");
    assert_eq!(chat_texts(&host, "family").await.len(), 8, "the tape is complete");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g02_g08_session_switches_to_the_notebook_and_back_on_one_tape() {
    let home = TempDir::new().unwrap();
    let host = start_host(home.path()).await;
    assert!(send(&host, "family", "ann", "one").await.starts_with(DEMO_INTRO));
    save_binding(&host, notebook_binding()).await;
    let second = send(&host, "family", "ann", "two").await;
    assert!(second.starts_with(DEMO_INTRO), "earlier messages are not in its context: {second}");
    host.bindings().remove(&"diary".into()).await.unwrap();
    assert_eq!(send(&host, "family", "ann", "three").await, "You said: three");
    save_binding(&host, notebook_binding()).await;
    assert_eq!(send(&host, "family", "ann", "four").await, "You said: four", "its notebook continues");

    let tape = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.session == Some("cli:family".into()));
    let window = host.tapes().window(&tape.unwrap().name).await.unwrap();
    let user_messages = DefaultView.messages(&window).into_iter().filter(|message| message.role == MessageRole::User);
    let user_messages: Vec<String> = user_messages.map(|message| message.content.text()).collect();
    assert_eq!(user_messages, ["one", "two", "three", "four"], "the agent would read all of them");
    host.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_t13_each_conversation_has_its_own_notebook() {
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
