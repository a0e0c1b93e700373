//! What a run has done, for a model whose context begins anew in the middle of it.

use std::collections::VecDeque;

use capstan_protocol::{ToolCall, ToolOutput};

/// How many calls are told: the newest.
const MOST_CALLS: usize = 30;
/// How much of the arguments of a call is told.
const LONGEST_ARGUMENTS: usize = 120;

/// The calls a run has made.
#[derive(Debug, Default)]
pub(crate) struct Done {
    newest: VecDeque<String>,
    earlier: usize,
}

impl Done {
    /// A call was made, and this came of it.
    pub(crate) fn add(&mut self, call: String, output: &ToolOutput) {
        self.newest.push_back(if output.is_error { call + " (failed)" } else { call });
        if self.newest.len() > MOST_CALLS {
            self.newest.pop_front();
            self.earlier += 1;
        }
    }

    /// What the model is told when it no longer sees its calls, so that it does not make them again.
    pub(crate) fn told(&self) -> Option<String> {
        if self.newest.is_empty() {
            return None;
        }
        let earlier = if self.earlier > 0 { format!("\n- {} earlier ones", self.earlier) } else { String::new() };
        let calls: String = self.newest.iter().flat_map(|call| ["\n- ", call]).collect();
        Some(format!(
            "The context was too long and begins anew here. These calls were already made for this request: do not \
             repeat what they did, go on from there. Their results are on the tape, where tape_search finds them.\
             {earlier}{calls}"
        ))
    }
}

/// A call in one line.
pub(crate) fn in_a_line(call: &ToolCall) -> String {
    let arguments = call.function.arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = arguments.chars().take(LONGEST_ARGUMENTS).collect();
    let more = if shown.len() < arguments.len() { "..." } else { "" };
    format!("{} {shown}{more}", call.function.name)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ToolCall, ToolOutput};

    use super::{Done, LONGEST_ARGUMENTS, MOST_CALLS, in_a_line};

    #[test]
    fn a02_what_was_done_is_told_with_how_it_ended() {
        let mut done = Done::default();
        assert_eq!(done.told(), None);
        done.add(in_a_line(&ToolCall::new("a", "bash", "{\"cmd\":\n \"git push\"}")), &ToolOutput::ok("ok"));
        done.add(in_a_line(&ToolCall::new("b", "mail", "{}")), &ToolOutput::error("no"));
        let told = done.told().unwrap();
        assert!(told.ends_with("\n- bash {\"cmd\": \"git push\"}\n- mail {} (failed)"), "{told}");
    }

    #[test]
    fn a02_what_is_told_has_a_limit() {
        let mut done = Done::default();
        for number in 0..MOST_CALLS + 5 {
            let call = ToolCall::new("a", format!("tool_{number}"), "x".repeat(10_000));
            done.add(in_a_line(&call), &ToolOutput::ok("ok"));
        }
        let told = done.told().unwrap();
        assert!(told.contains("\n- 5 earlier ones\n- tool_5 xxx"), "{told}");
        assert!(told.len() < MOST_CALLS * (LONGEST_ARGUMENTS + 30) + 500, "{}", told.len());
    }
}
