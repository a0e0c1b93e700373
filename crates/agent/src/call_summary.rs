//! Summary of the calls a run has made, for a model whose context was reset in the middle of the run.

use std::collections::VecDeque;

use capstan_protocol::{ToolCall, ToolOutput, escape_line, truncate_chars};

/// Maximum number of calls listed, the newest.
const MAX_SUMMARIZED_CALLS: usize = 30;
/// Maximum length of a call's arguments in the summary.
const MAX_ARGUMENT_CHARS: usize = 120;

/// Calls made by a run, the newest in full.
#[derive(Debug, Default)]
pub(crate) struct RunCallSummary {
    newest: VecDeque<String>,
    earlier_count: usize,
}

impl RunCallSummary {
    /// Adds a finished call.
    pub(crate) fn record(&mut self, call: String, output: &ToolOutput) {
        self.newest.push_back(if output.is_error { call + " (failed)" } else { call });
        if self.newest.len() > MAX_SUMMARIZED_CALLS {
            self.newest.pop_front();
            self.earlier_count += 1;
        }
    }

    /// Renders the message that tells the model which calls it already made, so that it does not repeat them.
    pub(crate) fn render(&self) -> Option<String> {
        if self.newest.is_empty() {
            return None;
        }
        let earlier =
            if self.earlier_count > 0 { format!("\n- {} earlier ones", self.earlier_count) } else { String::new() };
        let calls: String = self.newest.iter().flat_map(|call| ["\n- ", call]).collect();
        Some(format!(
            "The context was too long and was reset here. These calls were already made for this request: do not \
             repeat them, continue from there. Their results are on the tape; use tape_search to find them.\
             {earlier}{calls}"
        ))
    }
}

/// Formats a call on one line. Hidden characters of the arguments are shown as escapes; none is removed.
pub(crate) fn format_call(call: &ToolCall) -> String {
    let arguments = &call.function.arguments;
    // JSON has line ends between its values only, where they mean nothing.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
    let arguments = if is_json {
        arguments.split(['\n', '\r', '\t']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    } else {
        truncate_chars(arguments, MAX_ARGUMENT_CHARS + 1, "")
    };
    format!("{} {}", call.function.name, truncate_chars(&escape_line(&arguments), MAX_ARGUMENT_CHARS, "..."))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ToolCall, ToolOutput};

    use super::{MAX_ARGUMENT_CHARS, MAX_SUMMARIZED_CALLS, RunCallSummary, format_call};

    #[test]
    fn a02_summary_lists_calls_and_marks_failed_ones() {
        let mut summary = RunCallSummary::default();
        assert_eq!(summary.render(), None);
        summary.record(format_call(&ToolCall::new("a", "bash", "{\"cmd\":\n \"git push\"}")), &ToolOutput::ok("ok"));
        summary.record(format_call(&ToolCall::new("b", "mail", "{}")), &ToolOutput::error("no"));
        let rendered = summary.render().unwrap();
        assert!(rendered.ends_with("\n- bash {\"cmd\": \"git push\"}\n- mail {} (failed)"), "{rendered}");
    }

    #[test]
    fn x06_hidden_characters_of_arguments_are_shown() {
        let formatted = |arguments: &str| format_call(&ToolCall::new("a", "bash", arguments));
        assert_eq!(formatted("{\"cmd\": \"a  b\u{9b}2J\u{202e}\"}"), r#"bash {"cmd": "a  b\x9b2J\u{202e}"}"#);
        assert_eq!(formatted("ls #\u{1b}]\ntouch x"), r"bash ls #\x1b]\ntouch x");
    }

    #[test]
    fn a02_summary_is_bounded_in_calls_and_argument_length() {
        let mut summary = RunCallSummary::default();
        for number in 0..MAX_SUMMARIZED_CALLS + 5 {
            let call = ToolCall::new("a", format!("tool_{number}"), "x".repeat(10_000));
            summary.record(format_call(&call), &ToolOutput::ok("ok"));
        }
        let rendered = summary.render().unwrap();
        assert!(rendered.contains("\n- 5 earlier ones\n- tool_5 xxx"), "{rendered}");
        assert!(rendered.len() < MAX_SUMMARIZED_CALLS * (MAX_ARGUMENT_CHARS + 30) + 500, "{}", rendered.len());
    }
}
