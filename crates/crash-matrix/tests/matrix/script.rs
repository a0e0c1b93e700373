//! Scripts of a trial: kinds of turns, each in its own session, next to a session that is busy.

use capstan::protocol::{ActorRef, Event, EventId};
use capstan_crash_matrix::channel::PlatformChannel;
use capstan_crash_matrix::crash_plugin::{ADMISSION_KEY, SILENT_MARKER, UNSEEN_EFFECT, WAITS_AT_KEY};
use capstan_crash_matrix::state_runner::STATE_RUNNER_KEY;
use serde_json::json;

use crate::scripted_model::FAIL_MARKER;

/// Message to the host.
#[derive(Clone)]
pub struct ScriptedMessage {
    pub id: String,
    channel: &'static str,
    chat: &'static str,
    pub text: String,
    admission_mode: Option<&'static str>,
    /// Barrier at which its turn waits.
    turn_barrier: Option<&'static str>,
    /// Served by the state runner, which has no model.
    pub for_state_runner: bool,
    pub when: StartCondition,
    /// Allowed outcomes, unless the event is abandoned.
    pub allowed_outcomes: &'static [&'static str],
}

/// Gate that a tool waits at.
#[derive(Clone)]
pub struct ScriptedBarrier {
    pub key: &'static str,
    /// Condition to open it for a host that was never killed.
    pub when: StartCondition,
    /// Condition to open it for a restarted host.
    pub after_death: StartCondition,
}

/// Condition for a step of the script.
#[derive(Clone)]
pub enum StartCondition {
    Immediately,
    /// A tool waits at this barrier, or the event that called it has ended without.
    ToolWaiting(&'static str, &'static str),
    /// The host has acknowledged this event.
    Acknowledged(&'static str),
    /// All these events have ended, and their messages were sent.
    Ended(Vec<String>),
}

/// Kind of turn.
#[derive(Clone)]
pub struct TurnKind {
    pub title: &'static str,
    /// A plugin answers in place of the agent.
    pub replaces_agent: bool,
    pub messages: Vec<ScriptedMessage>,
    barriers: Vec<ScriptedBarrier>,
}

/// All steps of a trial.
pub struct TrialScript {
    pub title: String,
    pub replaces_agent: bool,
    /// Tape entries are stored in files.
    pub uses_file_tapes: bool,
    /// The machine has few resources: turns wait for each other, and the lock files of processes are removed.
    pub is_constrained: bool,
    pub messages: Vec<ScriptedMessage>,
    pub barriers: Vec<ScriptedBarrier>,
}

const REPLIED_OUTCOMES: &[&str] = &["replied"];
/// Session that is busy during the trial.
const BYSTANDER_SESSION: &str = "bystander";

impl ScriptedMessage {
    fn new(id: &str, chat: &'static str, text: &str, allowed_outcomes: &'static [&'static str]) -> Self {
        let (id, text) = (id.to_owned(), text.to_owned());
        Self {
            id,
            channel: PlatformChannel::CHAT_CHANNEL,
            chat,
            text,
            admission_mode: None,
            turn_barrier: None,
            for_state_runner: false,
            when: StartCondition::Immediately,
            allowed_outcomes,
        }
    }

    fn with_condition(self, when: StartCondition) -> Self {
        Self { when, ..self }
    }

    fn with_admission(self, mode: &'static str) -> Self {
        Self { admission_mode: Some(mode), ..self }
    }

    /// Makes its turn start only after the previous one is completely finished, so that the order of commits is always
    /// the same.
    fn with_turn_barrier(self, barrier: &'static str) -> Self {
        Self { turn_barrier: Some(barrier), ..self }
    }

    fn sent_by_caller(self) -> Self {
        Self { channel: PlatformChannel::CALLER_CHANNEL, ..self }
    }

    fn for_state_runner(self) -> Self {
        Self { for_state_runner: true, ..self }
    }

    pub fn is_from_caller(&self) -> bool {
        self.channel == PlatformChannel::CALLER_CHANNEL
    }

    /// Returns the requested effects that must not be executed twice, in the form of the execution record.
    pub fn effects(&self) -> Vec<String> {
        let tasks = self.text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' '));
        let is_unseen = |tool: &str| tool.starts_with(UNSEEN_EFFECT);
        let effects = tasks.filter(|(tool, _)| is_unseen(tool) || *tool == "effect");
        let effects =
            effects.map(|(tool, key)| format!("{} {key}", if is_unseen(tool) { UNSEEN_EFFECT } else { tool }));
        let by_command = self.text.strip_prefix(",effect key=").map(|key| format!("effect {key}"));
        effects.chain(by_command).collect()
    }

    /// Returns the tasks for the state runner as (task, key).
    pub fn state_tasks(&self) -> Vec<(&str, &str)> {
        let tasks = self.text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' '));
        tasks.filter(|_| self.for_state_runner).collect()
    }

    pub fn is_command(&self) -> bool {
        self.text.starts_with(',')
    }

    pub fn event(&self) -> Event {
        let mut event = Event::message(self.channel, self.chat, self.text.clone());
        event.event_id = EventId::new(self.id.as_str());
        event.actor = Some(ActorRef { id: "tester".to_owned(), name: None, kind: None });
        if let Some(mode) = self.admission_mode {
            event.metadata.insert(ADMISSION_KEY.to_owned(), json!(mode));
        }
        if let Some(barrier) = self.turn_barrier {
            event.metadata.insert(WAITS_AT_KEY.to_owned(), json!(barrier));
        }
        if self.for_state_runner {
            event.metadata.insert(STATE_RUNNER_KEY.to_owned(), json!(true));
        }
        event
    }
}

impl TurnKind {
    fn new(title: &'static str, messages: Vec<ScriptedMessage>) -> Self {
        Self { title, replaces_agent: false, messages, barriers: Vec::new() }
    }

    fn with_barrier(mut self, key: &'static str, when: StartCondition) -> Self {
        self.barriers.push(ScriptedBarrier { key, after_death: when.clone(), when });
        self
    }

    pub fn ids(&self) -> Vec<String> {
        self.messages.iter().map(|message| message.id.clone()).collect()
    }

    /// Returns the last message of its session, which continues the conversation.
    fn follow_up(&self) -> ScriptedMessage {
        let last = self.messages.last().expect("a kind has messages");
        let follow_up = ScriptedMessage { id: format!("{}-after", last.id), ..last.clone() };
        let text = format!("after {}", last.id);
        ScriptedMessage {
            text,
            admission_mode: None,
            turn_barrier: None,
            allowed_outcomes: REPLIED_OUTCOMES,
            ..follow_up
        }
        .with_condition(StartCondition::Ended(self.ids()))
    }
}

impl TrialScript {
    /// Creates a script that runs these kinds of turns concurrently, next to the busy session. When all have ended,
    /// each session gets one more message.
    pub fn from_kinds(kinds: &[TurnKind]) -> Self {
        let follow_ups: Vec<ScriptedMessage> = kinds.iter().map(TurnKind::follow_up).collect();
        let follow_up_ids: Vec<String> = follow_ups.iter().map(|message| message.id.clone()).collect();
        let all_ended = StartCondition::Ended(follow_up_ids);
        let mut script = Self {
            title: kinds.iter().map(|kind| kind.title).collect::<Vec<_>>().join(" + "),
            replaces_agent: kinds.iter().any(|kind| kind.replaces_agent),
            uses_file_tapes: false,
            is_constrained: false,
            messages: vec![ScriptedMessage::new(
                BYSTANDER_SESSION,
                BYSTANDER_SESSION,
                "mind [watch bystanding]",
                REPLIED_OUTCOMES,
            )],
            barriers: vec![ScriptedBarrier { key: "bystanding", when: all_ended.clone(), after_death: all_ended }],
        };
        for kind in kinds {
            let with_start_condition = |mut message: ScriptedMessage| {
                if matches!(message.when, StartCondition::Immediately) {
                    message.when = StartCondition::ToolWaiting("bystanding", BYSTANDER_SESSION);
                }
                message
            };
            script.messages.extend(kind.messages.iter().cloned().map(with_start_condition));
            script.barriers.extend(kind.barriers.iter().cloned());
        }
        script.messages.extend(follow_ups);
        script
    }
}

fn when_ended(id: &str) -> StartCondition {
    StartCondition::Ended(vec![id.to_owned()])
}

/// Returns all kinds of turns.
pub fn turn_kinds() -> Vec<TurnKind> {
    let mut kinds = vec![
        TurnKind::new(
            "A message with a reply",
            vec![ScriptedMessage::new("plain", "plain", "good morning", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A tool call",
            vec![ScriptedMessage::new("call", "call", "make [effect calling]", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "Two tool calls in one step, the second read-only",
            vec![ScriptedMessage::new("calls", "calls", "make [effect first] [look second]", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A tool call and a handoff in one step",
            vec![ScriptedMessage::new(
                "handoff",
                "handoff",
                "make [effect before] [handoff anchored]",
                REPLIED_OUTCOMES,
            )],
        ),
        TurnKind::new(
            "A command",
            vec![ScriptedMessage::new("command", "command", ",effect key=commanded", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A read-only command",
            vec![ScriptedMessage::new("looks", "looks", ",look key=looked", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A message without a reply",
            vec![ScriptedMessage::new("hush", "hush", &format!("no answer, please {SILENT_MARKER}"), &["silent"])],
        ),
        TurnKind::new(
            "A turn that fails",
            vec![ScriptedMessage::new("fails", "fails", &format!("say something {FAIL_MARKER}"), &["failed"])],
        ),
    ];
    kinds.extend(concurrent_kinds());
    kinds.extend([
        TurnKind::new(
            "A waiting caller",
            vec![ScriptedMessage::new("caller", "caller", "quick question", REPLIED_OUTCOMES).sent_by_caller()],
        ),
        TurnKind::new(
            "A waiting caller with a tool call",
            vec![
                ScriptedMessage::new("caller-call", "caller-call", "do [effect asked]", REPLIED_OUTCOMES)
                    .sent_by_caller(),
            ],
        ),
    ]);
    kinds.extend(state_runner_kinds());
    kinds.extend(unseen_effect_kinds());
    kinds
}

/// Kinds of turns with the state runner.
fn state_runner_kinds() -> Vec<TurnKind> {
    let state_turn = |title, id: &'static str, text| {
        TurnKind::new(title, vec![ScriptedMessage::new(id, id, text, REPLIED_OUTCOMES).for_state_runner()])
    };
    vec![
        state_turn("A runner that updates its state", "counts", "add [count counted]"),
        state_turn("A runner that sets state before it replies", "sets", "keep [set early] [count late]"),
        state_turn("A runner that writes to storage", "puts", "store [put stored] [count pointer]"),
        state_turn("A runner that creates artifacts", "makes", "make [make at-once] [yield at-its-end]"),
    ]
}

/// Kinds of turns with messages that arrive during a turn.
fn concurrent_kinds() -> Vec<TurnKind> {
    let mut interrupt = TurnKind::new(
        "A message that interrupts a turn",
        vec![
            ScriptedMessage::new("stopped", "interrupt", "wait [watch stoppable]", &["cancelled", "replied"]),
            ScriptedMessage::new("stopping", "interrupt", "rather this", REPLIED_OUTCOMES)
                .with_admission("interrupt")
                .with_turn_barrier("is-stopped")
                .with_condition(StartCondition::ToolWaiting("stoppable", "stopped")),
        ],
    )
    .with_barrier("is-stopped", when_ended("stopped"));
    // A message that had its turn in another process does not stop the first one any more.
    let stopped = ScriptedBarrier {
        key: "stoppable",
        when: when_ended("stopped"),
        after_death: StartCondition::Acknowledged("stopping"),
    };
    interrupt.barriers.push(stopped);
    let mut concurrent = TurnKind::new(
        "A command during a turn, and a dropped message",
        vec![
            ScriptedMessage::new("busy", "busy", "wait [watch being-busy]", REPLIED_OUTCOMES),
            ScriptedMessage::new("beside", "busy", ",look key=aside", REPLIED_OUTCOMES)
                .with_condition(StartCondition::ToolWaiting("being-busy", "busy")),
            ScriptedMessage::new("dropped", "busy", "never mind", &["dropped", "replied"])
                .with_admission("drop")
                .with_condition(when_ended("beside")),
        ],
    );
    // No command runs concurrently with a turn that another process had started.
    let busy = ("being-busy", StartCondition::Acknowledged("dropped"), StartCondition::Acknowledged("beside"));
    concurrent.barriers.push(ScriptedBarrier { key: busy.0, when: busy.1, after_death: busy.2 });
    vec![
        TurnKind::new(
            "A message ingested into the run",
            vec![
                ScriptedMessage::new("steered", "steer", "wait [watch steering]", REPLIED_OUTCOMES),
                ScriptedMessage::new("steering", "steer", "and this too", &["folded", "replied"])
                    .with_admission("steer")
                    .with_condition(StartCondition::ToolWaiting("steering", "steered")),
            ],
        )
        .with_barrier("steering", StartCondition::Acknowledged("steering")),
        TurnKind::new(
            "Messages collected into one turn",
            vec![
                ScriptedMessage::new("collect-0", "collect", "wait [watch collecting]", REPLIED_OUTCOMES),
                ScriptedMessage::new("collect-1", "collect", "part one", &["folded", "replied"])
                    .with_admission("collect")
                    .with_condition(StartCondition::ToolWaiting("collecting", "collect-0")),
                ScriptedMessage::new("collect-2", "collect", "part two", REPLIED_OUTCOMES)
                    .with_admission("collect")
                    .with_turn_barrier("is-collected")
                    .with_condition(StartCondition::Acknowledged("collect-1")),
            ],
        )
        .with_barrier("is-collected", when_ended("collect-0"))
        .with_barrier("collecting", StartCondition::Acknowledged("collect-2")),
        concurrent,
        interrupt,
    ]
}

/// Kinds of turns with a plugin in place of the agent, whose effects the host does not see.
fn unseen_effect_kinds() -> Vec<TurnKind> {
    let kinds = vec![
        TurnKind::new(
            "A `run_model` hook in place of the runner",
            vec![ScriptedMessage::new("own", "own", "do [unseen-effect owned]", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A `run_model` hook in place of the runner, for messages collected into one turn",
            vec![
                ScriptedMessage::new("own-0", "owns", "wait [unseen-effect-and-wait owning]", REPLIED_OUTCOMES),
                ScriptedMessage::new("own-1", "owns", "do [unseen-effect one]", &["folded", "replied"])
                    .with_admission("collect")
                    .with_condition(StartCondition::ToolWaiting("owning", "own-0")),
                ScriptedMessage::new("own-2", "owns", "do [unseen-effect two]", REPLIED_OUTCOMES)
                    .with_admission("collect")
                    .with_turn_barrier("is-owned")
                    .with_condition(StartCondition::Acknowledged("own-1")),
            ],
        )
        .with_barrier("is-owned", when_ended("own-0"))
        .with_barrier("owning", StartCondition::Acknowledged("own-2")),
    ];
    kinds.into_iter().map(|kind| TurnKind { replaces_agent: true, ..kind }).collect()
}
