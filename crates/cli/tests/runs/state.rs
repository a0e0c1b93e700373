//! What runners yield to be kept, and what of it is seen and when.

use std::sync::Arc;

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{
    Authority, Binding, Descriptor, Map, ResultBody, RunContext, RunResult, StateLimits, StatePolicy, StateScope,
};
use capstan_host::default_binding;
use futures::{StreamExt as _, stream};
use serde_json::json;

use super::support::{Conversation, Registers};

/// Yields a value for each of these keys, and then says what it finds under the last of them.
struct Keeper(&'static [&'static str]);

impl Runner for Keeper {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: Authority::all(), ..Descriptor::new("builtin:agent", "keeper") }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let (keys, scope) = (self.0, StateScope::Conversation);
        let update = move |key: &&str| {
            let state = Map::from_iter([((*key).to_owned(), json!(1))]);
            RunResult::from(ResultBody::StateUpdated { scope, state })
        };
        let found = async move {
            let found = api.state.get(scope, keys[keys.len() - 1]).await.unwrap();
            let content = format!("{found:?}").into();
            RunResult::from(ResultBody::MessageCompleted { content, provider_meta: Map::new() })
        };
        let done = RunResult::from(ResultBody::RunCompleted { silent: false });
        stream::iter(keys.iter().map(update)).chain(stream::once(found)).chain(stream::iter([done])).boxed()
    }
}

fn plugin(keys: &'static [&'static str]) -> impl Plugin {
    Registers("keeper", move |hooks: &mut Registrar| {
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(Keeper(keys)) as Arc<dyn Runner>])));
    })
}

/// A conversation with that runner, which may keep so many keys.
async fn keeping(keys: &'static [&'static str], most: u64) -> Conversation {
    let conversation = Conversation::with(plugin(keys)).await;
    let limits = StateLimits { keys: most, ..StateLimits::default() };
    let state_policy = StatePolicy { enabled: true, limits, ..StatePolicy::default() };
    let binding = Binding { state_policy, ..default_binding() };
    conversation.host.bindings().save(&binding, &conversation.host.runners()).await.unwrap();
    conversation
}

async fn kept(conversation: &Conversation) -> Vec<String> {
    let store = conversation.host.tapes().store();
    let Some(space) = store.spaces("state:").await.unwrap().pop() else { return Vec::new() };
    let kept = store.kept_in(&space.space, None, 100).await.unwrap();
    kept.into_iter().map(|kept| kept.key).collect()
}

#[tokio::test]
async fn g06_what_a_run_has_yielded_is_seen_by_itself_at_once() {
    let conversation = keeping(&["a", "b"], 10).await;
    assert_eq!(conversation.say("go").await.output, "Some(Number(1))");
    assert_eq!(kept(&conversation).await, ["a", "b"]);
}

#[tokio::test]
async fn g06_what_a_run_has_yielded_counts_when_it_yields_more() {
    let conversation = keeping(&["a", "b", "c", "a"], 2).await;
    conversation.say("go").await;
    assert_eq!(kept(&conversation).await, ["a", "b"], "a third key is one too many, and an old one is not");
    let dropped = conversation.host.tapes().list().await.unwrap();
    let session = dropped.iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:local")).unwrap();
    let entries = conversation.host.tapes().read(&session.name, &capstan::tape::Slice::all()).await.unwrap();
    let names: Vec<&str> = entries.iter().filter_map(capstan::tape::Entry::name).collect();
    let count = |name: &str| names.iter().filter(|known| **known == name).count();
    assert_eq!((count("state.changed"), count("result.dropped")), (3, 1));
}
