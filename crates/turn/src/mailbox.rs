//! What waits in a session, and what becomes a turn next: decisions only, no time of its own and no I/O.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_hooks::contracts::DebounceOptions;
use capstan_protocol::AdmissionMode;

/// What waits in a session.
///
/// Moments are counted from when the session was woken.
#[derive(Debug)]
pub struct SessionMailbox<T> {
    /// Turns that can begin, in order.
    ready: VecDeque<QueuedTurn<T>>,
    /// Messages that are held back until nobody says anything more.
    debounced: Option<DebouncedMessages<T>>,
    /// When somebody last spoke to the bot, and until when that lets others in.
    active_until: Option<Duration>,
}

/// Events that become one turn.
#[derive(Debug)]
struct QueuedTurn<T> {
    items: Vec<T>,
    kind: QueuedTurnKind,
}

#[derive(Debug, PartialEq, Eq)]
enum QueuedTurnKind {
    /// A turn of its own whatever comes: a command, what happened otherwise, or what had its turn begun before.
    Closed,
    /// A turn of its own, unless a message that interrupts takes it along.
    Waiting,
    /// What is to be collected joins it until its turn begins.
    Collecting,
    /// A message that interrupts, after everything it took along.
    Interrupting,
}

#[derive(Debug)]
struct DebouncedMessages<T> {
    items: Vec<T>,
    first_at: Duration,
    due_at: Duration,
}

/// How an event is to be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventArrival {
    /// What it does while a turn is going on.
    pub mode: AdmissionMode,
    /// What kind of event it is.
    pub kind: ArrivalKind,
    /// Whether messages are held back for a while.
    pub debounce: Option<DebounceOptions>,
}

impl EventArrival {
    /// A message that waits its turn.
    pub fn follow_up() -> Self {
        let kind = ArrivalKind::Message { addressed: true };
        Self { mode: AdmissionMode::FollowUp, kind, debounce: None }
    }

    /// Whether it need not wait for those before it, and so must not be refused because they are many: a command that
    /// runs beside a turn, or a message that interrupts one.
    pub fn can_bypass_queue(&self) -> bool {
        match self.kind {
            ArrivalKind::ConcurrentCommand => true,
            ArrivalKind::Message { .. } => self.mode == AdmissionMode::Interrupt,
            ArrivalKind::Command | ArrivalKind::Standalone => false,
        }
    }
}

/// What kind of event arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    /// A message.
    Message {
        /// Whether it is addressed to the bot.
        addressed: bool,
    },
    /// A command: it is never held back, and never taken into a run.
    Command,
    /// A command that may run beside a turn.
    ConcurrentCommand,
    /// What is no message, or comes with authority of its own: it has a turn of its own after everything that waits, which
    /// takes nothing along, is taken along by nothing, and interrupts nobody.
    Standalone,
}

/// Whether a turn is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionActivity {
    /// No turn is going on.
    Idle,
    /// A turn is going on.
    Busy,
}

/// What is to be done with an event now.
#[derive(Debug, PartialEq, Eq)]
pub enum MailboxDecision<T> {
    /// Nothing: it waits.
    Wait,
    /// It is offered to the run that is going on.
    Steer(T),
    /// It waits, with the messages it took along, and the run that is going on is to be cancelled.
    Interrupt,
    /// It has its turn at once, beside the one that is going on.
    RunConcurrently(T),
    /// It is let go.
    Drop(T),
}

impl<T> Default for SessionMailbox<T> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), debounced: None, active_until: None }
    }
}

impl<T> SessionMailbox<T> {
    /// An event arrives.
    pub fn admit(
        &mut self,
        item: T,
        arrival: &EventArrival,
        session: SessionActivity,
        now: Duration,
    ) -> MailboxDecision<T> {
        let addressed = match arrival.kind {
            ArrivalKind::ConcurrentCommand if session == SessionActivity::Busy => {
                return MailboxDecision::RunConcurrently(item);
            }
            ArrivalKind::ConcurrentCommand | ArrivalKind::Command | ArrivalKind::Standalone => true,
            ArrivalKind::Message { addressed } => addressed,
        };
        if let Some(lasts) = arrival.debounce.and_then(|debounce| debounce.active_window) {
            let is_open = self.active_until.is_some_and(|until| now < until);
            if addressed {
                self.active_until = Some(now + lasts);
            } else if !is_open {
                return MailboxDecision::Drop(item);
            }
        }
        let is_command = !matches!(arrival.kind, ArrivalKind::Message { .. });
        match (session, arrival.mode) {
            (SessionActivity::Busy, AdmissionMode::Drop) => return MailboxDecision::Drop(item),
            _ if arrival.kind == ArrivalKind::Standalone => {}
            // It does not get ahead of what waits, a command perhaps that is to change what it meets.
            (SessionActivity::Busy, AdmissionMode::Steer) if !is_command && self.is_empty() => {
                return MailboxDecision::Steer(item);
            }
            (SessionActivity::Busy, AdmissionMode::Interrupt) => {
                self.interrupt(item, is_command);
                return MailboxDecision::Interrupt;
            }
            // Between two turns: what waits would have its own before it.
            (SessionActivity::Idle, AdmissionMode::Interrupt) if self.is_ready() => {
                self.interrupt(item, is_command);
                return MailboxDecision::Wait;
            }
            _ => {}
        }
        match arrival.debounce {
            Some(debounce) if !is_command => self.debounce(item, debounce, addressed, now),
            _ => self.enqueue(item, arrival.mode, is_command),
        }
        MailboxDecision::Wait
    }

    /// A message that interrupts is what is wanted now, and what waits was said before it: so they become one turn. A
    /// command cannot be part of one: it keeps its place, and with it what came before it.
    fn interrupt(&mut self, item: T, is_command: bool) {
        if is_command {
            return self.push_back(item);
        }
        let stays =
            self.ready.iter().rposition(|group| group.kind == QueuedTurnKind::Closed).map_or(0, |last| last + 1);
        let held = self.debounced.take().into_iter().flat_map(|held| held.items);
        let mut items: Vec<T> = self.ready.drain(stays..).flat_map(|group| group.items).chain(held).collect();
        items.push(item);
        self.ready.push_back(QueuedTurn { items, kind: QueuedTurnKind::Interrupting });
    }

    fn debounce(&mut self, item: T, debounce: DebounceOptions, addressed: bool, now: Duration) {
        let held = self.debounced.get_or_insert(DebouncedMessages { items: Vec::new(), first_at: now, due_at: now });
        held.items.push(item);
        let last = held.first_at + debounce.max_wait;
        // Nobody waits for an answer to what was not said to the bot, so that waits for as long as it may.
        held.due_at = if addressed { last.min(now + debounce.quiet_period) } else { held.due_at.max(last) };
    }

    fn enqueue(&mut self, item: T, mode: AdmissionMode, is_command: bool) {
        if is_command {
            return self.push_back(item);
        }
        let kind = if mode == AdmissionMode::Collect { QueuedTurnKind::Collecting } else { QueuedTurnKind::Waiting };
        match self.ready.back_mut().filter(|group| kind == QueuedTurnKind::Collecting && group.kind == kind) {
            Some(group) => group.items.push(item),
            None => self.ready.push_back(QueuedTurn { items: vec![item], kind }),
        }
    }

    /// An event that has a turn of its own after everything that waits.
    pub fn push_back(&mut self, item: T) {
        self.ready.push_back(QueuedTurn { items: vec![item], kind: QueuedTurnKind::Closed });
    }

    /// Events that were to be part of a run that has ended without them: each has a turn of its own, after what came
    /// before it and before what came later, or goes along with a message that interrupted the run. `came` says when
    /// that was.
    pub fn requeue<K: Ord>(&mut self, items: Vec<T>, came: impl Fn(&T) -> K) {
        for item in items {
            let is_later = |other: &T| came(other) > came(&item);
            let goes_after = |group: &QueuedTurn<T>| match group.kind {
                QueuedTurnKind::Interrupting => group.items.last().is_some_and(is_later),
                _ => group.items.first().is_some_and(is_later),
            };
            let place = self.ready.iter().position(goes_after).unwrap_or(self.ready.len());
            match self.ready.get_mut(place).filter(|group| group.kind == QueuedTurnKind::Interrupting) {
                Some(group) => {
                    let place = group.items.iter().position(is_later).unwrap_or(group.items.len());
                    group.items.insert(place, item);
                }
                None => self.ready.insert(place, QueuedTurn { items: vec![item], kind: QueuedTurnKind::Waiting }),
            }
        }
    }

    /// Events that become one turn, before everything that waits.
    pub fn push_front(&mut self, items: Vec<T>) {
        self.ready.push_front(QueuedTurn { items, kind: QueuedTurnKind::Closed });
    }

    /// The events of the next turn.
    pub fn next_turn(&mut self, now: Duration) -> Option<Vec<T>> {
        if let Some(held) = self.debounced.take_if(|held| held.due_at <= now) {
            self.ready.push_back(QueuedTurn { items: held.items, kind: QueuedTurnKind::Waiting });
        }
        self.ready.pop_front().map(|group| group.items)
    }

    /// When to look again although nothing arrives: a message is due, or the time ends in which others are let in.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let due = self.debounced.as_ref().map(|held| held.due_at);
        due.into_iter().chain(self.active_until).min()
    }

    /// Forgets a window that has ended.
    pub fn expire_window(&mut self, now: Duration) {
        self.active_until = self.active_until.filter(|until| now < *until);
    }

    /// Whether a turn can begin.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.debounced.is_none()
    }

    /// Everything that waits, to be told something.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let held = self.debounced.iter_mut().flat_map(|held| &mut held.items);
        self.ready.iter_mut().flat_map(|group| &mut group.items).chain(held)
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
