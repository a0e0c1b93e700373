//! Plugin runs: a plugin's `run_model` or `run_model_stream` takes the place of the binding's runner in the same run.

use capstan_protocol::{ResultBody, RunResult, StreamEvent};
use capstan_tape::EntryDraft;
use capstan_turn::RunError;

use crate::results;
use crate::run::{Run, TerminalResult};

/// Journals an event of the plugin's stream, as if a runner had yielded it.
pub(crate) async fn record_plugin_event(run: &Run, event: &StreamEvent) {
    let body = match event.clone() {
        StreamEvent::Text { delta } => ResultBody::MessageDelta { delta },
        StreamEvent::ToolCall { call } => ResultBody::ToolCallStarted { call },
        StreamEvent::ToolResult { call_id, name, output } => ResultBody::ToolCallCompleted { call_id, name, output },
        StreamEvent::Usage { usage } => {
            run.add_usage(&usage);
            return;
        }
        StreamEvent::Error { message, .. } => {
            run.progress().last_error = Some(message);
            return;
        }
        StreamEvent::Reasoning { .. } | StreamEvent::Waiting { .. } | StreamEvent::Final { .. } => return,
    };
    results::handle_result(run, RunResult::from(body)).await;
}

/// Text of a plugin's final event that is not shown yet: a stream may have no other text. A final event that reports a
/// failure is kept as an error.
pub(crate) fn final_text(run: &Run, text: String, ok: bool) -> Option<StreamEvent> {
    let mut progress = run.progress();
    if !ok {
        progress.last_error.get_or_insert_with(|| "the model stage reported a failure".to_owned());
    }
    let is_unsaid = progress.partial_text.is_empty() && progress.completed_text.is_empty() && !text.is_empty();
    is_unsaid.then(|| StreamEvent::text(text))
}

/// Ends a plugin run: the streamed text becomes one message. A stream with an error and no text is a failure.
pub(crate) fn finish_plugin_run(run: &Run) {
    let terminal = run.progress().terminal.clone();
    if let Some(TerminalResult::Failed(failure)) = terminal {
        run.save_partial();
        run.append(EntryDraft::error("run_model", &failure.message));
        return;
    }
    run.flush_runner_tool_calls();
    let (text, has_completed_text, last_error) = {
        let mut progress = run.progress();
        let has_completed_text = !progress.completed_text.is_empty();
        (std::mem::take(&mut progress.partial_text), has_completed_text, progress.last_error.take())
    };
    let terminal = match last_error {
        Some(message) if text.is_empty() && !has_completed_text => {
            TerminalResult::Failed(RunError { message, code: None })
        }
        _ => TerminalResult::Completed { silent: false },
    };
    run.ingest_message();
    if let TerminalResult::Failed(failure) = &terminal {
        run.append(EntryDraft::error("run_model", &failure.message));
    } else if !text.is_empty() {
        run.complete_message(text.into(), Default::default());
    }
    run.progress().terminal.get_or_insert(terminal);
}
