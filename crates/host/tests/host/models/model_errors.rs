//! Retries of failed model calls.

use capstan_host::testing::{TestHost, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::Clock;
use capstan_testing::{ScriptedModel, ScriptedReply};

#[tokio::test]
async fn a08_retry_date_is_compared_with_the_clock_of_the_host() {
    let later = ScriptedReply::status(429, "{}").with_header("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT");
    let server = ScriptedModel::start(vec![later, ScriptedReply::text("here I am")]).await;
    let clock = Clock::new(|| "2100-01-01T00:00:00+00:00".parse().unwrap());
    let provider = ProviderOptions { clock: clock.clone(), ..scripted_provider_options(&server) };
    let builder = TestHost::builder().provider("openai", WireProtocol::OpenAi, provider).model("openai:m");
    let host = builder.options(|options| options.clock = clock).start().await;
    assert_eq!(host.send_message("hi").await.output, "here I am");
}
