//! Plugin that logs every hook call.

use std::sync::{Arc, Mutex, MutexGuard};

use capstan_hooks::args::{ErrorReport, ErrorStage};
use capstan_hooks::points::OnError;
use capstan_hooks::{BoxError, HookRegistrar, HookTraceEvent, HookTraceResult, HookTracer, Plugin};

/// Logs every hook call with its result, every fallback, and every error with its stage. Clones share the log.
///
/// The recorder registers last and is therefore the first error observer: its line precedes those of the other observers.
#[derive(Clone, Default)]
pub struct HookRecorder {
    log: Arc<Mutex<RecorderLog>>,
}

#[derive(Default)]
struct RecorderLog {
    lines: Vec<TraceLine>,
    /// Stage of the error that observers are being notified of.
    stage: Option<ErrorStage>,
}

enum TraceLine {
    Hook { name: String, event: HookTraceEvent },
    Note { topic: String, text: String },
}

/// Length at which texts are truncated: a trace identifies a text and does not repeat it.
const MAX_TRACE_CHARS: usize = 90;

impl HookRecorder {
    /// Logs a line that is not a hook call, such as an event shown to a channel or a closed scope.
    pub fn note(&self, topic: &str, text: impl Into<String>) {
        self.log().lines.push(TraceLine::Note { topic: topic.to_owned(), text: text.into() });
    }

    /// Clears the log.
    pub fn clear(&self) {
        self.log().lines.clear();
    }

    /// Log with one line per call.
    pub fn lines(&self) -> Vec<String> {
        self.log().lines.iter().map(|line| line.format(|_| String::new())).collect()
    }

    /// Log with the arguments passed to each implementation.
    pub fn lines_with_arguments(&self) -> Vec<String> {
        self.log().lines.iter().map(|line| line.format(|arguments| format!("({})", arguments.join(", ")))).collect()
    }

    fn log(&self) -> MutexGuard<'_, RecorderLog> {
        self.log.lock().unwrap()
    }
}

impl Plugin for HookRecorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let recorder = self.clone();
        hooks.add_tracer(Arc::new(self.clone())).on(OnError, move |stage: ErrorStage, error: ErrorReport| {
            recorder.log().stage = Some(stage);
            recorder.note(&format!("on_error({})", stage.as_str()), format!("reports {:?}", error.public));
            async { Ok(None) }
        });
        Ok(())
    }
}

impl HookTracer for HookRecorder {
    fn record(&self, event: &HookTraceEvent) {
        let mut log = self.log();
        let name = match event {
            HookTraceEvent::Called { plugin, .. } if plugin.as_str() == "recorder" => return,
            HookTraceEvent::Called { hook: "on_error", .. } => {
                format!("on_error({})", log.stage.map_or("?", ErrorStage::as_str))
            }
            HookTraceEvent::Called { hook, .. } | HookTraceEvent::Fallback { hook, .. } => (*hook).to_owned(),
        };
        log.lines.push(TraceLine::Hook { name, event: event.clone() });
    }
}

impl TraceLine {
    fn format(&self, format_arguments: impl Fn(&[&str]) -> String) -> String {
        let (topic, text) = match self {
            Self::Note { topic, text } => (topic, truncate_text(text)),
            Self::Hook { name, event: HookTraceEvent::Fallback { value, .. } } => {
                (name, format!("(fallback) {}", truncate_text(value)))
            }
            Self::Hook { name, event: HookTraceEvent::Called { plugin, arguments, result, .. } } => {
                let result = match result {
                    HookTraceResult::Value(value) => format!("-> {}", truncate_text(value)),
                    HookTraceResult::Nothing => "-> nothing".to_owned(),
                    HookTraceResult::Failed(reason) => truncate_text(reason),
                };
                (name, format!("{plugin}{} {result}", format_arguments(arguments)))
            }
        };
        format!("{topic:19} {text}")
    }
}

/// Text truncated to [`MAX_TRACE_CHARS`].
pub fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(MAX_TRACE_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
