//! Identity of runners: it comes from the plugin that provides them.

use std::sync::Arc;

use capstan_hooks::Plugin;
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{Descriptor, PluginRef, ResultBody, RunContext, RunnerSource};
use futures::{StreamExt as _, stream};

/// Runner that declares an identity and replies with its own code of a failure.
struct DeclaredRunner(Descriptor);

impl Runner for DeclaredRunner {
    fn descriptor(&self) -> Descriptor {
        self.0.clone()
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        stream::iter([ResultBody::RunCompleted { silent: true }.into()]).boxed()
    }
}

/// Plugin `ann/greeter` with these runners.
fn greeter_plugin(declared: Vec<Descriptor>) -> impl Plugin {
    let runners: Vec<Arc<dyn Runner>> =
        declared.into_iter().map(|descriptor| Arc::new(DeclaredRunner(descriptor)) as Arc<dyn Runner>).collect();
    ClosurePlugin::new("greeter", move |hooks| {
        let runners = runners.clone();
        hooks.on_sync(ProvideRunners, move || Ok(Some(runners.clone())));
    })
    .with_author("ann")
}

fn runner_ids(host: &TestHost) -> Vec<String> {
    host.runners().iter().map(|runner| runner.id.to_string()).collect()
}

#[tokio::test]
async fn g15_a_runner_with_the_identity_of_another_plugin_is_refused() {
    let own = |id: &str| Descriptor::new(id, "Greeter");
    let foreign_plugin = PluginRef { author: "bob".to_owned(), name: "notes".to_owned(), version: None };
    let declared = vec![
        own("plugin:ann/greeter/hello"),
        own("plugin:bob/notes/all"),
        own("builtin:agent"),
        Descriptor { plugin: Some(foreign_plugin), ..own("plugin:ann/greeter/reader") },
        Descriptor { source: RunnerSource::HostAdapter, ..own("plugin:ann/greeter/adapter") },
    ];
    let host = TestHost::builder().plugin(greeter_plugin(declared)).start().await;
    assert_eq!(runner_ids(&host), ["plugin:ann/greeter/hello", "builtin:agent"]);
    let agent = host.runners().into_iter().find(|runner| runner.id.as_str() == "builtin:agent").unwrap();
    assert_eq!(agent.source, RunnerSource::HostAdapter, "the agent of the host is still there");
    let refused: Vec<String> = host.refused_runners().iter().map(ToString::to_string).collect();
    let refusal = |id: &str, reason: &str| format!("the runner {id} of the plugin greeter is refused: {reason}");
    let foreign_id = "the id must be plugin:ann/greeter/NAME, after the author and the name of its plugin";
    assert_eq!(
        refused,
        [
            refusal("plugin:bob/notes/all", foreign_id),
            refusal("builtin:agent", foreign_id),
            refusal("plugin:ann/greeter/reader", "it names another plugin than ann/greeter, which provides it"),
            refusal("plugin:ann/greeter/adapter", "only runners of the host itself have the source host_adapter"),
        ]
    );
}

#[tokio::test]
async fn g15_runners_with_the_same_id_are_refused() {
    let hello = || Descriptor::new("plugin:ann/greeter/hello", "Greeter");
    let other = Descriptor::new("plugin:ann/greeter/other", "Greeter");
    let host = TestHost::builder().plugin(greeter_plugin(vec![hello(), other, hello()])).start().await;
    assert_eq!(runner_ids(&host), ["plugin:ann/greeter/other", "builtin:agent"]);
    assert!(host.refused_runners().iter().all(|refused| refused.reason == "another runner has the same id"));
    assert_eq!(host.refused_runners().len(), 2);
}
