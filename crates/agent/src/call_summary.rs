//! What a run has done, for a model whose context begins anew in the middle of it.

use std::collections::VecDeque;

use capstan_protocol::{ToolCall, ToolOutput};

/// How many calls are told: the newest.
const MAX_SUMMARIZED_CALLS: usize = 30;
/// How much of the arguments of a call is told.
const MAX_ARGUMENT_CHARS: usize = 120;

/// The calls a run has made.
#[derive(Debug, Default)]
pub(crate) struct RunCallSummary {
    newest: VecDeque<String>,
    earlier_count: usize,
}

impl RunCallSummary {
    /// A call was made, and this came of it.
    pub(crate) fn record(&mut self, call: String, output: &ToolOutput) {
        self.newest.push_back(if output.is_error { call + " (failed)" } else { call });
        if self.newest.len() > MAX_SUMMARIZED_CALLS {
            self.newest.pop_front();
            self.earlier_count += 1;
        }
    }

    /// What the model is told when it no longer sees its calls, so that it does not make them again.
    pub(crate) fn render(&self) -> Option<String> {
        if self.newest.is_empty() {
            return None;
        }
        let earlier =
            if self.earlier_count > 0 { format!("\n- {} earlier ones", self.earlier_count) } else { String::new() };
        let calls: String = self.newest.iter().flat_map(|call| ["\n- ", call]).collect();
        Some(format!(
            "The context was too long and begins anew here. These calls were already made for this request: do not \
             repeat what they did, go on from there. Their results are on the tape, where tape_search finds them.\
             {earlier}{calls}"
        ))
    }
}

/// A call in one line.
pub(crate) fn format_call(call: &ToolCall) -> String {
    let arguments = call.function.arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = arguments.chars().take(MAX_ARGUMENT_CHARS).collect();
    let more = if shown.len() < arguments.len() { "..." } else { "" };
    format!("{} {shown}{more}", call.function.name)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ToolCall, ToolOutput};

    use super::{MAX_ARGUMENT_CHARS, MAX_SUMMARIZED_CALLS, RunCallSummary, format_call};

    #[test]
    fn a02_what_was_done_is_told_with_how_it_ended() {
        let mut done = RunCallSummary::default();
        assert_eq!(done.render(), None);
        done.record(format_call(&ToolCall::new("a", "bash", "{\"cmd\":\n \"git push\"}")), &ToolOutput::ok("ok"));
        done.record(format_call(&ToolCall::new("b", "mail", "{}")), &ToolOutput::error("no"));
        let told = done.render().unwrap();
        assert!(told.ends_with("\n- bash {\"cmd\": \"git push\"}\n- mail {} (failed)"), "{told}");
    }

    #[test]
    fn a02_what_is_told_has_a_limit() {
        let mut done = RunCallSummary::default();
        for number in 0..MAX_SUMMARIZED_CALLS + 5 {
            let call = ToolCall::new("a", format!("tool_{number}"), "x".repeat(10_000));
            done.record(format_call(&call), &ToolOutput::ok("ok"));
        }
        let told = done.render().unwrap();
        assert!(told.contains("\n- 5 earlier ones\n- tool_5 xxx"), "{told}");
        assert!(told.len() < MAX_SUMMARIZED_CALLS * (MAX_ARGUMENT_CHARS + 30) + 500, "{}", told.len());
    }
}
