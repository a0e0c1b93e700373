//! Tool calls that a runner makes itself and reports in its results.
//!
//! # Grouping into steps
//!
//! A tool result on the tape belongs to the nearest step before it. A runner may start calls one by one and complete
//! them in any order. Calls that are started together therefore become one step, and a call that starts while others
//! are unanswered waits for the next step.

use capstan_protocol::{ToolCall, ToolOutput};
use capstan_tape::EntryDraft;

/// Reported calls that are not complete yet.
#[derive(Default)]
pub(crate) struct RunnerToolCalls {
    /// The calls of the step on the tape that have no result yet.
    open: Vec<String>,
    /// Calls of the next step.
    queued: Vec<ToolCall>,
    /// Results of calls of the next step.
    early_results: Vec<(String, ToolOutput)>,
}

impl RunnerToolCalls {
    /// Returns true if a call on the tape has no result yet.
    pub(crate) fn has_open_call(&self) -> bool {
        !self.open.is_empty()
    }

    /// Adds a started call.
    pub(crate) fn start(&mut self, call: ToolCall) {
        self.queued.push(call);
    }

    /// Returns true if a call with this id has no result yet. Ids may be reused.
    pub(crate) fn is_awaiting(&self, call_id: &str) -> bool {
        let queued = self.queued.iter().filter(|call| call.id == call_id).count();
        let early = self.early_results.iter().filter(|(id, _)| id == call_id).count();
        queued > early || self.open.iter().any(|open| open == call_id)
    }

    /// Adds the result of a call. Returns the entries to write now.
    pub(crate) fn complete(&mut self, call_id: &str, output: ToolOutput) -> Vec<EntryDraft> {
        let mut drafts = self.advance();
        if self.close_call(call_id) {
            drafts.push(EntryDraft::tool_result(call_id, &output));
        } else if self.queued.iter().any(|call| call.id == call_id) {
            self.early_results.push((call_id.to_owned(), output));
        }
        drafts.extend(self.advance());
        drafts
    }

    /// Called before any other result is written. Returns the entries to write first.
    pub(crate) fn advance(&mut self) -> Vec<EntryDraft> {
        let mut drafts = Vec::new();
        while self.open.is_empty() && !self.queued.is_empty() {
            drafts.extend(self.begin_step());
        }
        drafts
    }

    /// Called at the end of the run. Returns all remaining entries.
    pub(crate) fn finish(&mut self) -> Vec<EntryDraft> {
        self.open.clear();
        if self.queued.is_empty() { Vec::new() } else { self.begin_step() }
    }

    fn begin_step(&mut self) -> Vec<EntryDraft> {
        let calls = std::mem::take(&mut self.queued);
        self.open = calls.iter().map(|call| call.id.clone()).collect();
        let mut drafts = vec![EntryDraft::tool_call(&calls)];
        for (call_id, output) in std::mem::take(&mut self.early_results) {
            if self.close_call(&call_id) {
                drafts.push(EntryDraft::tool_result(&call_id, &output));
            }
        }
        drafts
    }

    fn close_call(&mut self, call_id: &str) -> bool {
        let position = self.open.iter().position(|open| open == call_id);
        position.map(|position| self.open.remove(position)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ToolCall, ToolOutput};
    use capstan_tape::EntryDraft;

    use super::RunnerToolCalls;

    fn describe(drafts: &[EntryDraft]) -> Vec<String> {
        let names = |draft: &EntryDraft| match draft.payload.get("calls") {
            Some(calls) => {
                let ids: Vec<&str> =
                    calls.as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
                format!("calls {}", ids.join(" "))
            }
            None => format!("result {}", draft.payload["call_ids"][0].as_str().unwrap()),
        };
        drafts.iter().map(names).collect()
    }

    fn run_script(script: &str) -> Vec<String> {
        let mut reported = RunnerToolCalls::default();
        let mut written = Vec::new();
        for word in script.split_whitespace() {
            match word.split_at(1) {
                ("+", id) => reported.start(ToolCall::new(id, "bash", "{}")),
                ("-", id) => written.extend(describe(&reported.complete(id, ToolOutput::ok("done")))),
                _ => written.extend(describe(&reported.advance())),
            }
        }
        written.extend(describe(&reported.finish()));
        written
    }

    #[test]
    fn p13_calls_started_together_are_one_step_in_any_order_of_results() {
        assert_eq!(run_script("+a +b -b -a"), ["calls a b", "result b", "result a"]);
        assert_eq!(run_script("+a -a +b -b"), ["calls a", "result a", "calls b", "result b"]);
    }

    #[test]
    fn p13_a_call_started_while_others_are_unanswered_waits_for_the_next_step() {
        assert_eq!(run_script("+a -x . +b -b -a"), ["calls a", "result a", "calls b", "result b"]);
        assert_eq!(run_script("+a +b -a +c -b -c"), ["calls a b", "result a", "result b", "calls c", "result c"]);
    }

    #[test]
    fn p13_a_call_without_a_result_is_still_recorded() {
        assert_eq!(run_script("+a"), ["calls a"]);
        assert_eq!(run_script("+a . +b"), ["calls a", "calls b"]);
    }
}
