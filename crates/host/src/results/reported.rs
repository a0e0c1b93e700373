//! Tool calls that a runner made itself and tells of: written so that every call keeps its own result.
//!
//! A result on the tape belongs to the nearest step before it. A runner may start calls one by one and have them answered
//! in any order, so calls that are started together become one step, and one that is started while others are
//! unanswered waits for the step after them.

use capstan_protocol::{ToolCall, ToolOutput};
use capstan_tape::Draft;

/// The calls a runner told of that are not settled yet.
#[derive(Default)]
pub(crate) struct Reported {
    /// The calls of the step on the tape that have no result yet.
    open: Vec<String>,
    /// Calls of the next step.
    waiting: Vec<ToolCall>,
    /// Results of calls of the next step.
    early: Vec<(String, ToolOutput)>,
}

impl Reported {
    /// A call was started.
    pub(crate) fn start(&mut self, call: ToolCall) {
        self.waiting.push(call);
    }

    /// Whether a call of this id waits for its answer. Ids may be used again.
    pub(crate) fn expects(&self, call_id: &str) -> bool {
        let waiting = self.waiting.iter().filter(|call| call.id == call_id).count();
        let early = self.early.iter().filter(|(id, _)| id == call_id).count();
        waiting > early || self.open.iter().any(|open| open == call_id)
    }

    /// A call was answered. Gives what is to be written now.
    pub(crate) fn answer(&mut self, call_id: &str, output: ToolOutput) -> Vec<Draft> {
        let mut drafts = self.next_step();
        if self.take_open(call_id) {
            drafts.push(Draft::tool_result(call_id, &output));
        } else if self.waiting.iter().any(|call| call.id == call_id) {
            self.early.push((call_id.to_owned(), output));
        }
        drafts.extend(self.next_step());
        drafts
    }

    /// Something else happened. Gives what is to be written before it.
    pub(crate) fn next_step(&mut self) -> Vec<Draft> {
        let mut drafts = Vec::new();
        while self.open.is_empty() && !self.waiting.is_empty() {
            drafts.extend(self.begin_step());
        }
        drafts
    }

    /// The run is over. Gives all that is left.
    pub(crate) fn finish(&mut self) -> Vec<Draft> {
        self.open.clear();
        if self.waiting.is_empty() { Vec::new() } else { self.begin_step() }
    }

    fn begin_step(&mut self) -> Vec<Draft> {
        let calls = std::mem::take(&mut self.waiting);
        self.open = calls.iter().map(|call| call.id.clone()).collect();
        let mut drafts = vec![Draft::tool_call(&calls)];
        for (call_id, output) in std::mem::take(&mut self.early) {
            if self.take_open(&call_id) {
                drafts.push(Draft::tool_result(&call_id, &output));
            }
        }
        drafts
    }

    fn take_open(&mut self, call_id: &str) -> bool {
        let position = self.open.iter().position(|open| open == call_id);
        position.map(|position| self.open.remove(position)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Reported;
    use capstan_protocol::{ToolCall, ToolOutput};
    use capstan_tape::Draft;

    fn told(drafts: &[Draft]) -> Vec<String> {
        let names = |draft: &Draft| match draft.payload.get("calls") {
            Some(calls) => {
                let ids: Vec<&str> =
                    calls.as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
                format!("calls {}", ids.join(" "))
            }
            None => format!("result {}", draft.payload["call_ids"][0].as_str().unwrap()),
        };
        drafts.iter().map(names).collect()
    }

    fn run(script: &str) -> Vec<String> {
        let mut reported = Reported::default();
        let mut written = Vec::new();
        for word in script.split_whitespace() {
            match word.split_at(1) {
                ("+", id) => reported.start(ToolCall::new(id, "bash", "{}")),
                ("-", id) => written.extend(told(&reported.answer(id, ToolOutput::ok("done")))),
                _ => written.extend(told(&reported.next_step())),
            }
        }
        written.extend(told(&reported.finish()));
        written
    }

    #[test]
    fn p13_calls_started_together_are_one_step_whatever_order_they_are_answered_in() {
        assert_eq!(run("+a +b -b -a"), ["calls a b", "result b", "result a"]);
        assert_eq!(run("+a -a +b -b"), ["calls a", "result a", "calls b", "result b"]);
    }

    #[test]
    fn p13_a_call_started_while_others_are_unanswered_waits_for_the_next_step() {
        assert_eq!(run("+a -x . +b -b -a"), ["calls a", "result a", "calls b", "result b"]);
        assert_eq!(run("+a +b -a +c -b -c"), ["calls a b", "result a", "result b", "calls c", "result c"]);
    }

    #[test]
    fn p13_what_is_never_answered_is_still_told() {
        assert_eq!(run("+a"), ["calls a"]);
        assert_eq!(run("+a . +b"), ["calls a", "calls b"]);
    }
}
