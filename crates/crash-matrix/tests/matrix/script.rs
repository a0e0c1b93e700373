//! What happens to the host: kinds of turns, each in a session of its own, beside a session that is in the middle of
//! something.

use capstan::protocol::{ActorRef, Event, EventId};
use capstan_crash_matrix::channel::PlatformChannel;
use capstan_crash_matrix::crash_plugin::{ADMISSION_KEY, SILENT_MARKER, WAITS_AT_KEY};
use capstan_crash_matrix::state_runner::STATE_RUNNER_KEY;
use serde_json::json;

use crate::scripted_model::FAIL_MARKER;

/// Something that is said to the host.
#[derive(Clone)]
pub struct ScriptedMessage {
    pub id: String,
    channel: &'static str,
    chat: &'static str,
    pub text: String,
    admission_mode: Option<&'static str>,
    /// The gate its turn waits at.
    turn_gate: Option<&'static str>,
    /// A runner without a model serves it, which keeps things in the host.
    pub for_state_runner: bool,
    pub when: StartCondition,
    /// The outcomes it may have, when nothing of it was given up.
    pub allowed_outcomes: &'static [&'static str],
}

/// A gate that a tool waits at.
#[derive(Clone)]
pub struct ScriptedGate {
    pub key: &'static str,
    /// When it opens for a host that was never killed.
    pub when: StartCondition,
    /// When it opens for one that was started again.
    pub after_death: StartCondition,
}

/// When something happens.
#[derive(Clone)]
pub enum StartCondition {
    Immediately,
    /// A tool waits at this gate, or the event that asked for it has ended without.
    ToolWaiting(&'static str, &'static str),
    /// The host has said that it has this event.
    Acknowledged(&'static str),
    /// These events have ended, and everything that was to be sent was.
    Ended(Vec<String>),
}

/// A kind of turn.
#[derive(Clone)]
pub struct TurnKind {
    pub title: &'static str,
    /// A plugin answers in place of the agent.
    pub replaces_agent: bool,
    pub messages: Vec<ScriptedMessage>,
    gates: Vec<ScriptedGate>,
}

/// Everything that happens to a host.
pub struct TrialScript {
    pub title: String,
    pub replaces_agent: bool,
    /// The entries of tapes are kept as files.
    pub uses_file_tapes: bool,
    pub messages: Vec<ScriptedMessage>,
    pub gates: Vec<ScriptedGate>,
}

const REPLIED_OUTCOMES: &[&str] = &["replied"];
/// The session that is in the middle of something.
const BYSTANDER_SESSION: &str = "bystander";

impl ScriptedMessage {
    fn new(id: &str, chat: &'static str, text: &str, ends: &'static [&'static str]) -> Self {
        let (id, text) = (id.to_owned(), text.to_owned());
        Self {
            id,
            channel: PlatformChannel::CHAT_CHANNEL,
            chat,
            text,
            admission_mode: None,
            turn_gate: None,
            for_state_runner: false,
            when: StartCondition::Immediately,
            allowed_outcomes: ends,
        }
    }

    fn when(self, when: StartCondition) -> Self {
        Self { when, ..self }
    }

    fn with_admission(self, mode: &'static str) -> Self {
        Self { admission_mode: Some(mode), ..self }
    }

    /// Its turn begins when the one before it is over and done with, so that the order of commits is always the same.
    fn with_turn_gate(self, gate: &'static str) -> Self {
        Self { turn_gate: Some(gate), ..self }
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

    /// What it asks for that must not be done twice, as it is put on record.
    pub fn effects(&self) -> Vec<String> {
        let tasks = self.text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' '));
        let own = |tool: &str| tool.starts_with("own");
        let made = tasks.filter(|(tool, _)| own(tool) || *tool == "effect");
        let made = made.map(|(tool, key)| format!("{} {key}", if own(tool) { "own" } else { tool }));
        let commanded = self.text.strip_prefix(",effect key=").map(|key| format!("effect {key}"));
        made.chain(commanded).collect()
    }

    /// What it asks the keeper for, by task and key.
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
        event.actor = Some(ActorRef { id: "tester".to_owned(), name: None });
        if let Some(mode) = self.admission_mode {
            event.metadata.insert(ADMISSION_KEY.to_owned(), json!(mode));
        }
        if let Some(gate) = self.turn_gate {
            event.metadata.insert(WAITS_AT_KEY.to_owned(), json!(gate));
        }
        if self.for_state_runner {
            event.metadata.insert(STATE_RUNNER_KEY.to_owned(), json!(true));
        }
        event
    }
}

impl TurnKind {
    fn new(title: &'static str, said: Vec<ScriptedMessage>) -> Self {
        Self { title, replaces_agent: false, messages: said, gates: Vec::new() }
    }

    fn with_gate(mut self, key: &'static str, when: StartCondition) -> Self {
        self.gates.push(ScriptedGate { key, after_death: when.clone(), when });
        self
    }

    pub fn ids(&self) -> Vec<String> {
        self.messages.iter().map(|said| said.id.clone()).collect()
    }

    /// What is said last in its session: it goes on.
    fn follow_up(&self) -> ScriptedMessage {
        let last = self.messages.last().expect("something is said");
        let follow_up = ScriptedMessage { id: format!("{}-after", last.id), ..last.clone() };
        let text = format!("after {}", last.id);
        ScriptedMessage { text, admission_mode: None, turn_gate: None, allowed_outcomes: REPLIED_OUTCOMES, ..follow_up }
            .when(StartCondition::Ended(self.ids()))
    }
}

impl TrialScript {
    /// A script of these kinds of turns at once, beside the session that is in the middle of something. When all have
    /// ended, each session is asked once more.
    pub fn from_kinds(kinds: &[TurnKind]) -> Self {
        let follow_ups: Vec<ScriptedMessage> = kinds.iter().map(TurnKind::follow_up).collect();
        let ends: Vec<String> = follow_ups.iter().map(|said| said.id.clone()).collect();
        let ends = StartCondition::Ended(ends);
        let mut script = Self {
            title: kinds.iter().map(|kind| kind.title).collect::<Vec<_>>().join(" + "),
            replaces_agent: kinds.iter().any(|kind| kind.replaces_agent),
            uses_file_tapes: false,
            messages: vec![ScriptedMessage::new(
                BYSTANDER_SESSION,
                BYSTANDER_SESSION,
                "mind [watch bystanding]",
                REPLIED_OUTCOMES,
            )],
            gates: vec![ScriptedGate { key: "bystanding", when: ends.clone(), after_death: ends }],
        };
        for kind in kinds {
            let begins = |mut said: ScriptedMessage| {
                if matches!(said.when, StartCondition::Immediately) {
                    said.when = StartCondition::ToolWaiting("bystanding", BYSTANDER_SESSION);
                }
                said
            };
            script.messages.extend(kind.messages.iter().cloned().map(begins));
            script.gates.extend(kind.gates.iter().cloned());
        }
        script.messages.extend(follow_ups);
        script
    }
}

fn when_ended(id: &str) -> StartCondition {
    StartCondition::Ended(vec![id.to_owned()])
}

/// Every kind of turn.
pub fn turn_kinds() -> Vec<TurnKind> {
    let mut kinds = vec![
        TurnKind::new(
            "A message that is answered",
            vec![ScriptedMessage::new("plain", "plain", "good morning", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A tool call",
            vec![ScriptedMessage::new("call", "call", "make [effect calling]", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "Two tool calls in one step, the second only looks",
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
            "A command that only looks",
            vec![ScriptedMessage::new("looks", "looks", ",look key=looked", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A message that is not to be answered",
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
            "A caller that waits",
            vec![ScriptedMessage::new("caller", "caller", "quick question", REPLIED_OUTCOMES).sent_by_caller()],
        ),
        TurnKind::new(
            "A caller that waits for a tool call",
            vec![
                ScriptedMessage::new("caller-call", "caller-call", "do [effect asked]", REPLIED_OUTCOMES)
                    .sent_by_caller(),
            ],
        ),
    ]);
    kinds.extend(state_runner_kinds());
    kinds.extend(stand_in_kinds());
    kinds
}

/// A runner that keeps things in the host.
fn state_runner_kinds() -> Vec<TurnKind> {
    let keeper = |title, id: &'static str, text| {
        TurnKind::new(title, vec![ScriptedMessage::new(id, id, text, REPLIED_OUTCOMES).for_state_runner()])
    };
    vec![
        keeper("A runner that updates its state", "counts", "add [count counted]"),
        keeper("A runner that sets state before it answers", "sets", "keep [set early] [count late]"),
        keeper("A runner that puts a content into storage", "puts", "store [put stored] [count pointer]"),
        keeper("A runner that makes artifacts", "makes", "make [make at-once] [yield at-its-end]"),
    ]
}

/// Messages that come while a turn is going on.
fn concurrent_kinds() -> Vec<TurnKind> {
    let mut interrupt = TurnKind::new(
        "A message that interrupts",
        vec![
            ScriptedMessage::new("stopped", "interrupt", "wait [watch stoppable]", &["cancelled", "replied"]),
            ScriptedMessage::new("stopping", "interrupt", "rather this", REPLIED_OUTCOMES)
                .with_admission("interrupt")
                .with_turn_gate("is-stopped")
                .when(StartCondition::ToolWaiting("stoppable", "stopped")),
        ],
    )
    .with_gate("is-stopped", when_ended("stopped"));
    // What was to be stopped is not stopped by a message that had its turn in another process.
    let stopped = ScriptedGate {
        key: "stoppable",
        when: when_ended("stopped"),
        after_death: StartCondition::Acknowledged("stopping"),
    };
    interrupt.gates.push(stopped);
    let mut beside = TurnKind::new(
        "A command beside a turn, and a message that is let go",
        vec![
            ScriptedMessage::new("busy", "busy", "wait [watch being-busy]", REPLIED_OUTCOMES),
            ScriptedMessage::new("beside", "busy", ",look key=aside", REPLIED_OUTCOMES)
                .when(StartCondition::ToolWaiting("being-busy", "busy")),
            ScriptedMessage::new("dropped", "busy", "never mind", &["dropped", "replied"])
                .with_admission("drop")
                .when(when_ended("beside")),
        ],
    );
    // Nothing runs beside a turn that another process had begun.
    let busy = ("being-busy", StartCondition::Acknowledged("dropped"), StartCondition::Acknowledged("beside"));
    beside.gates.push(ScriptedGate { key: busy.0, when: busy.1, after_death: busy.2 });
    vec![
        TurnKind::new(
            "A message taken into the run",
            vec![
                ScriptedMessage::new("steered", "steer", "wait [watch steering]", REPLIED_OUTCOMES),
                ScriptedMessage::new("steering", "steer", "and this too", &["folded", "replied"])
                    .with_admission("steer")
                    .when(StartCondition::ToolWaiting("steering", "steered")),
            ],
        )
        .with_gate("steering", StartCondition::Acknowledged("steering")),
        TurnKind::new(
            "Messages collected into one turn",
            vec![
                ScriptedMessage::new("collect-0", "collect", "wait [watch collecting]", REPLIED_OUTCOMES),
                ScriptedMessage::new("collect-1", "collect", "part one", &["folded", "replied"])
                    .with_admission("collect")
                    .when(StartCondition::ToolWaiting("collecting", "collect-0")),
                ScriptedMessage::new("collect-2", "collect", "part two", REPLIED_OUTCOMES)
                    .with_admission("collect")
                    .with_turn_gate("is-collected")
                    .when(StartCondition::Acknowledged("collect-1")),
            ],
        )
        .with_gate("is-collected", when_ended("collect-0"))
        .with_gate("collecting", StartCondition::Acknowledged("collect-2")),
        beside,
        interrupt,
    ]
}

/// A plugin answers in place of the agent, with effects that the host does not see.
fn stand_in_kinds() -> Vec<TurnKind> {
    let kinds = vec![
        TurnKind::new(
            "A plugin's own runner",
            vec![ScriptedMessage::new("own", "own", "do [own owned]", REPLIED_OUTCOMES)],
        ),
        TurnKind::new(
            "A plugin's own runner, for messages collected into one turn",
            vec![
                ScriptedMessage::new("own-0", "owns", "wait [own-watch owning]", REPLIED_OUTCOMES),
                ScriptedMessage::new("own-1", "owns", "do [own one]", &["folded", "replied"])
                    .with_admission("collect")
                    .when(StartCondition::ToolWaiting("owning", "own-0")),
                ScriptedMessage::new("own-2", "owns", "do [own two]", REPLIED_OUTCOMES)
                    .with_admission("collect")
                    .with_turn_gate("is-owned")
                    .when(StartCondition::Acknowledged("own-1")),
            ],
        )
        .with_gate("is-owned", when_ended("own-0"))
        .with_gate("owning", StartCondition::Acknowledged("own-2")),
    ];
    kinds.into_iter().map(|kind| TurnKind { replaces_agent: true, ..kind }).collect()
}
