//! A plugin that logs every hook call.

use std::sync::{Arc, Mutex, MutexGuard};

use capstan::hooks::args::{ErrorReport, ErrorStage};
use capstan::hooks::points::OnError;
use capstan::hooks::{BoxError, HookRegistrar, HookTraceEvent, HookTraceResult, HookTracer, Plugin};

/// Logs every hook call with its result, every fallback, and every error with its stage. Clones share the log.
///
/// It registers last, so it is the first observer to be told: the lines of the others come after the error they are about.
#[derive(Clone, Default)]
pub struct HookRecorder {
    log: Arc<Mutex<RecorderLog>>,
}

#[derive(Default)]
struct RecorderLog {
    lines: Vec<TraceLine>,
    /// The stage of the error that observers are being told of.
    stage: Option<ErrorStage>,
}

enum TraceLine {
    Hook { name: String, event: HookTraceEvent },
    Note { topic: String, text: String },
}

/// Texts longer than this are cut: a trace shows which text it is, not all of it.
const MAX_TRACE_CHARS: usize = 90;

impl HookRecorder {
    /// Logs something that is no hook call: what a channel was shown, a scope that was closed.
    pub fn note(&self, topic: &str, text: impl Into<String>) {
        self.log().lines.push(TraceLine::Note { topic: topic.to_owned(), text: text.into() });
    }

    /// Forgets what was logged so far.
    pub fn clear(&self) {
        self.log().lines.clear();
    }

    /// The log, a line for each call.
    pub fn lines(&self) -> Vec<String> {
        self.log().lines.iter().map(|line| line.format(|_| String::new())).collect()
    }

    /// The log, with the arguments each implementation was given.
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
        let told = self.clone();
        hooks.add_tracer(Arc::new(self.clone())).on(OnError, move |stage: ErrorStage, error: ErrorReport| {
            told.log().stage = Some(stage);
            told.note(&format!("on_error({})", stage.as_str()), format!("told {:?}", error.public));
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
    fn format(&self, arguments_shown: impl Fn(&[&str]) -> String) -> String {
        let (topic, text) = match self {
            Self::Note { topic, text } => (topic, truncate_text(text)),
            Self::Hook { name, event: HookTraceEvent::Fallback { value, .. } } => {
                (name, format!("(fallback) {}", truncate_text(value)))
            }
            Self::Hook { name, event: HookTraceEvent::Called { plugin, arguments, result: answer, .. } } => {
                let answer = match answer {
                    HookTraceResult::Value(value) => format!("-> {}", truncate_text(value)),
                    HookTraceResult::Nothing => "-> nothing".to_owned(),
                    HookTraceResult::Failed(reason) => truncate_text(reason),
                };
                (name, format!("{plugin}{} {answer}", arguments_shown(arguments)))
            }
        };
        format!("{topic:19} {text}")
    }
}

/// The text, cut where it is too long to be shown.
pub fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(MAX_TRACE_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
