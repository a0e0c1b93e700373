//! Host under test; with arguments, the command line on its home.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_crash_matrix::channel::PlatformChannel;
use capstan_crash_matrix::crash_plugin::CrashPlugin;
use capstan_crash_matrix::state_runner::StateRunner;
use capstan_crash_matrix::trial_dir::TrialDir;

fn main() -> ExitCode {
    let is_set = |name| std::env::var_os(name).is_some();
    let plugin = CrashPlugin { trial_dir: TrialDir::from_env(), replaces_agent: is_set(TrialDir::STAND_IN_VARIABLE) };
    if std::env::args_os().len() > 1 {
        return Capstan::builder().plugin(plugin).build().main();
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut runtime = if is_set(TrialDir::THREADS_VARIABLE) {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = Capstan::builder()
            .plugin(plugin)
            // The platform is the operator: it sends commands with effects.
            .trust_channel(CrashPlugin::PLUGIN_NAME, PlatformChannel::CHAT_CHANNEL)
            .trust_channel(CrashPlugin::PLUGIN_NAME, PlatformChannel::CALLER_CHANNEL)
            .start()
            .await
            .expect("a host");
        if is_set(TrialDir::STATE_RUNNER_VARIABLE) {
            StateRunner::bind(&host).await;
        }
        host.listen(&[PlatformChannel::CHAT_CHANNEL.into(), PlatformChannel::CALLER_CHANNEL.into()]).await;
        // Runs until it is killed or the platform is gone.
        for failure in host.wait_for_channels().await {
            eprintln!("{failure}");
        }
    });
    ExitCode::SUCCESS
}
