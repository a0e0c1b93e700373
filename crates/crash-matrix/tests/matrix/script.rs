//! What happens to the host: kinds of turns, each in a session of its own, beside a session that is in the middle of
//! something.

use capstan::protocol::{ActorRef, Event, EventId};
use capstan_crash_matrix::channel::Line;
use capstan_crash_matrix::hooks::{ADMISSION, HUSH, WAITS_AT};
use capstan_crash_matrix::keeper::KEEPER;
use serde_json::json;

use crate::model::FAIL;

/// Something that is said to the host.
#[derive(Clone)]
pub struct Said {
    pub id: String,
    channel: &'static str,
    chat: &'static str,
    pub text: String,
    mode: Option<&'static str>,
    /// The gate its turn waits at.
    waits_at: Option<&'static str>,
    /// A runner without a model serves it, which keeps things in the host.
    pub for_keeper: bool,
    pub when: When,
    /// The outcomes it may have, when nothing of it was given up.
    pub ends: &'static [&'static str],
}

/// A gate that a tool waits at.
#[derive(Clone)]
pub struct Gate {
    pub key: &'static str,
    /// When it opens for a host that was never killed.
    pub when: When,
    /// When it opens for one that was started again.
    pub after_death: When,
}

/// When something happens.
#[derive(Clone)]
pub enum When {
    AtOnce,
    /// A tool waits at this gate, or the event that asked for it has ended without.
    Waits(&'static str, &'static str),
    /// The host has said that it has this event.
    Acknowledged(&'static str),
    /// These events have ended, and everything that was to be sent was.
    Ended(Vec<String>),
}

/// A kind of turn.
#[derive(Clone)]
pub struct Kind {
    pub title: &'static str,
    /// A plugin answers in place of the agent.
    pub stands_in: bool,
    pub said: Vec<Said>,
    gates: Vec<Gate>,
}

/// Everything that happens to a host.
pub struct Script {
    pub title: String,
    pub stands_in: bool,
    /// The entries of tapes are kept as files.
    pub keeps_files: bool,
    pub said: Vec<Said>,
    pub gates: Vec<Gate>,
}

const REPLIED: &[&str] = &["replied"];
/// The session that is in the middle of something.
const BYSTANDER: &str = "bystander";

impl Said {
    fn new(id: &str, chat: &'static str, text: &str, ends: &'static [&'static str]) -> Self {
        let (id, text) = (id.to_owned(), text.to_owned());
        Self {
            id,
            channel: Line::WIRE,
            chat,
            text,
            mode: None,
            waits_at: None,
            for_keeper: false,
            when: When::AtOnce,
            ends,
        }
    }

    fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    fn admitted(self, mode: &'static str) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// Its turn begins when the one before it is over and done with, so that the order of commits is always the same.
    fn waiting_at(self, gate: &'static str) -> Self {
        Self { waits_at: Some(gate), ..self }
    }

    fn by_caller(self) -> Self {
        Self { channel: Line::DESK, ..self }
    }

    fn for_keeper(self) -> Self {
        Self { for_keeper: true, ..self }
    }

    pub fn is_by_caller(&self) -> bool {
        self.channel == Line::DESK
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
    pub fn kept(&self) -> Vec<(&str, &str)> {
        let tasks = self.text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' '));
        tasks.filter(|_| self.for_keeper).collect()
    }

    pub fn is_command(&self) -> bool {
        self.text.starts_with(',')
    }

    pub fn event(&self) -> Event {
        let mut event = Event::message(self.channel, self.chat, self.text.clone());
        event.event_id = EventId::new(self.id.as_str());
        event.actor = Some(ActorRef { id: "tester".to_owned(), name: None });
        if let Some(mode) = self.mode {
            event.metadata.insert(ADMISSION.to_owned(), json!(mode));
        }
        if let Some(gate) = self.waits_at {
            event.metadata.insert(WAITS_AT.to_owned(), json!(gate));
        }
        if self.for_keeper {
            event.metadata.insert(KEEPER.to_owned(), json!(true));
        }
        event
    }
}

impl Kind {
    fn new(title: &'static str, said: Vec<Said>) -> Self {
        Self { title, stands_in: false, said, gates: Vec::new() }
    }

    fn gate(mut self, key: &'static str, when: When) -> Self {
        self.gates.push(Gate { key, after_death: when.clone(), when });
        self
    }

    pub fn ids(&self) -> Vec<String> {
        self.said.iter().map(|said| said.id.clone()).collect()
    }

    /// What is said last in its session: it goes on.
    fn follow_up(&self) -> Said {
        let last = self.said.last().expect("something is said");
        let follow_up = Said { id: format!("{}-after", last.id), ..last.clone() };
        let text = format!("after {}", last.id);
        Said { text, mode: None, waits_at: None, ends: REPLIED, ..follow_up }.when(When::Ended(self.ids()))
    }
}

impl Script {
    /// A script of these kinds of turns at once, beside the session that is in the middle of something. When all have
    /// ended, each session is asked once more.
    pub fn of(kinds: &[Kind]) -> Self {
        let follow_ups: Vec<Said> = kinds.iter().map(Kind::follow_up).collect();
        let ends: Vec<String> = follow_ups.iter().map(|said| said.id.clone()).collect();
        let ends = When::Ended(ends);
        let mut script = Self {
            title: kinds.iter().map(|kind| kind.title).collect::<Vec<_>>().join(" + "),
            stands_in: kinds.iter().any(|kind| kind.stands_in),
            keeps_files: false,
            said: vec![Said::new(BYSTANDER, BYSTANDER, "mind [watch bystanding]", REPLIED)],
            gates: vec![Gate { key: "bystanding", when: ends.clone(), after_death: ends }],
        };
        for kind in kinds {
            let begins = |mut said: Said| {
                if matches!(said.when, When::AtOnce) {
                    said.when = When::Waits("bystanding", BYSTANDER);
                }
                said
            };
            script.said.extend(kind.said.iter().cloned().map(begins));
            script.gates.extend(kind.gates.iter().cloned());
        }
        script.said.extend(follow_ups);
        script
    }
}

fn ended(id: &str) -> When {
    When::Ended(vec![id.to_owned()])
}

/// Every kind of turn.
pub fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        Kind::new("A message that is answered", vec![Said::new("plain", "plain", "good morning", REPLIED)]),
        Kind::new("A tool call", vec![Said::new("call", "call", "make [effect calling]", REPLIED)]),
        Kind::new(
            "Two tool calls in one step, the second only looks",
            vec![Said::new("calls", "calls", "make [effect first] [look second]", REPLIED)],
        ),
        Kind::new(
            "A tool call and a handoff in one step",
            vec![Said::new("handoff", "handoff", "make [effect before] [handoff anchored]", REPLIED)],
        ),
        Kind::new("A command", vec![Said::new("command", "command", ",effect key=commanded", REPLIED)]),
        Kind::new("A command that only looks", vec![Said::new("looks", "looks", ",look key=looked", REPLIED)]),
        Kind::new(
            "A message that is not to be answered",
            vec![Said::new("hush", "hush", &format!("no answer, please {HUSH}"), &["silent"])],
        ),
        Kind::new(
            "A turn that fails",
            vec![Said::new("fails", "fails", &format!("say something {FAIL}"), &["failed"])],
        ),
    ];
    kinds.extend(meanwhile());
    kinds.extend([
        Kind::new("A caller that waits", vec![Said::new("caller", "caller", "quick question", REPLIED).by_caller()]),
        Kind::new(
            "A caller that waits for a tool call",
            vec![Said::new("caller-call", "caller-call", "do [effect asked]", REPLIED).by_caller()],
        ),
    ]);
    kinds.extend(keepers());
    kinds.extend(stand_ins());
    kinds
}

/// A runner that keeps things in the host.
fn keepers() -> Vec<Kind> {
    let keeper = |title, id: &'static str, text| Kind::new(title, vec![Said::new(id, id, text, REPLIED).for_keeper()]);
    vec![
        keeper("A runner that updates its state", "counts", "add [count counted]"),
        keeper("A runner that sets state before it answers", "sets", "keep [set early] [count late]"),
        keeper("A runner that puts a content into storage", "puts", "store [put stored] [count pointer]"),
        keeper("A runner that makes artifacts", "makes", "make [make at-once] [yield at-its-end]"),
    ]
}

/// Messages that come while a turn is going on.
fn meanwhile() -> Vec<Kind> {
    let mut interrupt = Kind::new(
        "A message that interrupts",
        vec![
            Said::new("stopped", "interrupt", "wait [watch stoppable]", &["cancelled", "replied"]),
            Said::new("stopping", "interrupt", "rather this", REPLIED)
                .admitted("interrupt")
                .waiting_at("is-stopped")
                .when(When::Waits("stoppable", "stopped")),
        ],
    )
    .gate("is-stopped", ended("stopped"));
    // What was to be stopped is not stopped by a message that had its turn in another process.
    let stopped = Gate { key: "stoppable", when: ended("stopped"), after_death: When::Acknowledged("stopping") };
    interrupt.gates.push(stopped);
    let mut beside = Kind::new(
        "A command beside a turn, and a message that is let go",
        vec![
            Said::new("busy", "busy", "wait [watch being-busy]", REPLIED),
            Said::new("beside", "busy", ",look key=aside", REPLIED).when(When::Waits("being-busy", "busy")),
            Said::new("dropped", "busy", "never mind", &["dropped", "replied"]).admitted("drop").when(ended("beside")),
        ],
    );
    // Nothing runs beside a turn that another process had begun.
    let busy = ("being-busy", When::Acknowledged("dropped"), When::Acknowledged("beside"));
    beside.gates.push(Gate { key: busy.0, when: busy.1, after_death: busy.2 });
    vec![
        Kind::new(
            "A message taken into the run",
            vec![
                Said::new("steered", "steer", "wait [watch steering]", REPLIED),
                Said::new("steering", "steer", "and this too", &["folded", "replied"])
                    .admitted("steer")
                    .when(When::Waits("steering", "steered")),
            ],
        )
        .gate("steering", When::Acknowledged("steering")),
        Kind::new(
            "Messages collected into one turn",
            vec![
                Said::new("collect-0", "collect", "wait [watch collecting]", REPLIED),
                Said::new("collect-1", "collect", "part one", &["folded", "replied"])
                    .admitted("collect")
                    .when(When::Waits("collecting", "collect-0")),
                Said::new("collect-2", "collect", "part two", REPLIED)
                    .admitted("collect")
                    .waiting_at("is-collected")
                    .when(When::Acknowledged("collect-1")),
            ],
        )
        .gate("is-collected", ended("collect-0"))
        .gate("collecting", When::Acknowledged("collect-2")),
        beside,
        interrupt,
    ]
}

/// A plugin answers in place of the agent, with effects that the host does not see.
fn stand_ins() -> Vec<Kind> {
    let kinds = vec![
        Kind::new("A plugin's own runner", vec![Said::new("own", "own", "do [own owned]", REPLIED)]),
        Kind::new(
            "A plugin's own runner, for messages collected into one turn",
            vec![
                Said::new("own-0", "owns", "wait [own-watch owning]", REPLIED),
                Said::new("own-1", "owns", "do [own one]", &["folded", "replied"])
                    .admitted("collect")
                    .when(When::Waits("owning", "own-0")),
                Said::new("own-2", "owns", "do [own two]", REPLIED)
                    .admitted("collect")
                    .waiting_at("is-owned")
                    .when(When::Acknowledged("own-1")),
            ],
        )
        .gate("is-owned", ended("own-0"))
        .gate("owning", When::Acknowledged("own-2")),
    ];
    kinds.into_iter().map(|kind| Kind { stands_in: true, ..kind }).collect()
}
