//! A plugin that logs every hook call.

use std::sync::{Arc, Mutex, MutexGuard};

use capstan::hooks::args::{Fault, Stage};
use capstan::hooks::points::OnError;
use capstan::hooks::{Answer, BoxError, Plugin, Registrar, Trace, TraceEvent};

/// Logs every hook call with its result, every fallback, and every error with its stage. Clones share the log.
///
/// It registers last, so it is the first observer to be told: the lines of the others come after the error they are about.
#[derive(Clone, Default)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    lines: Vec<Line>,
    /// The stage of the error that observers are being told of.
    stage: Option<Stage>,
}

enum Line {
    Hook { name: String, event: TraceEvent },
    Note { topic: String, text: String },
}

/// Texts longer than this are cut: a trace shows which text it is, not all of it.
const SHOWN_CHARS: usize = 90;

impl Recorder {
    /// Logs something that is no hook call: what a channel was shown, a scope that was closed.
    pub fn note(&self, topic: &str, text: impl Into<String>) {
        self.log().lines.push(Line::Note { topic: topic.to_owned(), text: text.into() });
    }

    /// Forgets what was logged so far.
    pub fn clear(&self) {
        self.log().lines.clear();
    }

    /// The log, a line for each call.
    pub fn lines(&self) -> Vec<String> {
        self.log().lines.iter().map(|line| line.shown(|_| String::new())).collect()
    }

    /// The log, with the arguments each implementation was given.
    pub fn lines_with_arguments(&self) -> Vec<String> {
        self.log().lines.iter().map(|line| line.shown(|arguments| format!("({})", arguments.join(", ")))).collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }
}

impl Plugin for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        let told = self.clone();
        hooks.trace(Arc::new(self.clone())).on(OnError, move |stage: Stage, error: Fault| {
            told.log().stage = Some(stage);
            told.note(&format!("on_error({})", stage.as_str()), format!("told {:?}", error.public));
            async { Ok(None) }
        });
        Ok(())
    }
}

impl Trace for Recorder {
    fn record(&self, event: &TraceEvent) {
        let mut log = self.log();
        let name = match event {
            TraceEvent::Called { plugin, .. } if plugin.as_str() == "recorder" => return,
            TraceEvent::Called { hook: "on_error", .. } => {
                format!("on_error({})", log.stage.map_or("?", Stage::as_str))
            }
            TraceEvent::Called { hook, .. } | TraceEvent::Fallback { hook, .. } => (*hook).to_owned(),
        };
        log.lines.push(Line::Hook { name, event: event.clone() });
    }
}

impl Line {
    fn shown(&self, arguments_shown: impl Fn(&[&str]) -> String) -> String {
        let (topic, text) = match self {
            Self::Note { topic, text } => (topic, cut(text)),
            Self::Hook { name, event: TraceEvent::Fallback { value, .. } } => {
                (name, format!("(fallback) {}", cut(value)))
            }
            Self::Hook { name, event: TraceEvent::Called { plugin, arguments, answer, .. } } => {
                let answer = match answer {
                    Answer::Value(value) => format!("-> {}", cut(value)),
                    Answer::Nothing => "-> nothing".to_owned(),
                    Answer::Failed(reason) => cut(reason),
                };
                (name, format!("{plugin}{} {answer}", arguments_shown(arguments)))
            }
        };
        format!("{topic:19} {text}")
    }
}

/// The text, cut where it is too long to be shown.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
