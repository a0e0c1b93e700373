//! A host to be killed; with arguments, the command line on its home.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_crash_matrix::channel::Line;
use capstan_crash_matrix::hooks::Crash;
use capstan_crash_matrix::keeper::Keeper;
use capstan_crash_matrix::place::Place;

fn main() -> ExitCode {
    let is_set = |name| std::env::var_os(name).is_some();
    let plugin = Crash { place: Place::of_process(), stands_in: is_set(Place::STANDS_IN) };
    if std::env::args_os().len() > 1 {
        return Capstan::builder().plugin(plugin).build().main();
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut runtime = if is_set(Place::THREADS) {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = Capstan::builder().plugin(plugin).start().await.expect("a host");
        if is_set(Place::KEEPS) {
            Keeper::bind(&host).await;
        }
        host.listen(&[Line::WIRE.into(), Line::DESK.into()]).await;
        // Until it is killed, or the platform is gone.
        for failure in host.ended().await {
            eprintln!("{failure}");
        }
    });
    ExitCode::SUCCESS
}
