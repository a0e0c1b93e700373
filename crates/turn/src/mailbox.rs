//! What waits in a session, and what becomes a turn next: decisions only, no time of its own and no I/O.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_hooks::contracts::Debounce;
use capstan_protocol::AdmissionMode;

/// What waits in a session.
///
/// Moments are counted from when the session was woken.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// Turns that can begin, in order.
    ready: VecDeque<Group<T>>,
    /// Messages that are held back until nobody says anything more.
    held: Option<Held<T>>,
    /// When somebody last spoke to the bot, and until when that lets others in.
    window: Option<Duration>,
}

/// Events that become one turn.
#[derive(Debug)]
struct Group<T> {
    items: Vec<T>,
    kind: GroupKind,
}

#[derive(Debug, PartialEq, Eq)]
enum GroupKind {
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
struct Held<T> {
    items: Vec<T>,
    since: Duration,
    due: Duration,
}

/// How an event is to be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// What it does while a turn is going on.
    pub mode: AdmissionMode,
    /// What kind of event it is.
    pub kind: ArrivalKind,
    /// Whether messages are held back for a while.
    pub debounce: Option<Debounce>,
}

impl Arrival {
    /// A message that waits its turn.
    pub fn plain() -> Self {
        let kind = ArrivalKind::Message { addressed: true };
        Self { mode: AdmissionMode::FollowUp, kind, debounce: None }
    }

    /// Whether it need not wait for those before it, and so must not be refused because they are many: a command that
    /// runs beside a turn, or a message that interrupts one.
    pub fn gets_through(&self) -> bool {
        match self.kind {
            ArrivalKind::Beside => true,
            ArrivalKind::Message { .. } => self.mode == AdmissionMode::Interrupt,
            ArrivalKind::Command | ArrivalKind::Alone => false,
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
    Beside,
    /// What is no message, or comes with authority of its own: it has a turn of its own after everything that waits, which
    /// takes nothing along, is taken along by nothing, and interrupts nobody.
    Alone,
}

/// Whether a turn is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// No turn is going on.
    Free,
    /// A turn is going on.
    Busy,
}

/// What is to be done with an event now.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision<T> {
    /// Nothing: it waits.
    Waits,
    /// It is offered to the run that is going on.
    Steer(T),
    /// It waits, with the messages it took along, and the run that is going on is to be cancelled.
    Interrupts,
    /// It has its turn at once, beside the one that is going on.
    Beside(T),
    /// It is let go.
    Drop(T),
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), held: None, window: None }
    }
}

impl<T> Mailbox<T> {
    /// An event arrives.
    pub fn arrive(&mut self, item: T, arrival: &Arrival, session: Session, now: Duration) -> Decision<T> {
        let addressed = match arrival.kind {
            ArrivalKind::Beside if session == Session::Busy => return Decision::Beside(item),
            ArrivalKind::Beside | ArrivalKind::Command | ArrivalKind::Alone => true,
            ArrivalKind::Message { addressed } => addressed,
        };
        if let Some(lasts) = arrival.debounce.and_then(|debounce| debounce.active_window) {
            let is_open = self.window.is_some_and(|until| now < until);
            if addressed {
                self.window = Some(now + lasts);
            } else if !is_open {
                return Decision::Drop(item);
            }
        }
        let is_command = !matches!(arrival.kind, ArrivalKind::Message { .. });
        match (session, arrival.mode) {
            (Session::Busy, AdmissionMode::Drop) => return Decision::Drop(item),
            _ if arrival.kind == ArrivalKind::Alone => {}
            // It does not get ahead of what waits, a command perhaps that is to change what it meets.
            (Session::Busy, AdmissionMode::Steer) if !is_command && self.is_empty() => return Decision::Steer(item),
            (Session::Busy, AdmissionMode::Interrupt) => {
                self.interrupt(item, is_command);
                return Decision::Interrupts;
            }
            // Between two turns: what waits would have its own before it.
            (Session::Free, AdmissionMode::Interrupt) if self.is_ready() => {
                self.interrupt(item, is_command);
                return Decision::Waits;
            }
            _ => {}
        }
        match arrival.debounce {
            Some(debounce) if !is_command => self.hold(item, debounce, addressed, now),
            _ => self.queue(item, arrival.mode, is_command),
        }
        Decision::Waits
    }

    /// A message that interrupts is what is wanted now, and what waits was said before it: so they become one turn. A
    /// command cannot be part of one: it keeps its place, and with it what came before it.
    fn interrupt(&mut self, item: T, is_command: bool) {
        if is_command {
            return self.queue_last(item);
        }
        let stays = self.ready.iter().rposition(|group| group.kind == GroupKind::Closed).map_or(0, |last| last + 1);
        let held = self.held.take().into_iter().flat_map(|held| held.items);
        let mut items: Vec<T> = self.ready.drain(stays..).flat_map(|group| group.items).chain(held).collect();
        items.push(item);
        self.ready.push_back(Group { items, kind: GroupKind::Interrupting });
    }

    fn hold(&mut self, item: T, debounce: Debounce, addressed: bool, now: Duration) {
        let held = self.held.get_or_insert(Held { items: Vec::new(), since: now, due: now });
        held.items.push(item);
        let last = held.since + debounce.max_wait;
        // Nobody waits for an answer to what was not said to the bot, so that waits for as long as it may.
        held.due = if addressed { last.min(now + debounce.quiet) } else { held.due.max(last) };
    }

    fn queue(&mut self, item: T, mode: AdmissionMode, is_command: bool) {
        if is_command {
            return self.queue_last(item);
        }
        let kind = if mode == AdmissionMode::Collect { GroupKind::Collecting } else { GroupKind::Waiting };
        match self.ready.back_mut().filter(|group| kind == GroupKind::Collecting && group.kind == kind) {
            Some(group) => group.items.push(item),
            None => self.ready.push_back(Group { items: vec![item], kind }),
        }
    }

    /// An event that has a turn of its own after everything that waits.
    pub fn queue_last(&mut self, item: T) {
        self.ready.push_back(Group { items: vec![item], kind: GroupKind::Closed });
    }

    /// Events that were to be part of a run that has ended without them: each has a turn of its own, after what came
    /// before it and before what came later, or goes along with a message that interrupted the run. `came` says when
    /// that was.
    pub fn put_back<K: Ord>(&mut self, items: Vec<T>, came: impl Fn(&T) -> K) {
        for item in items {
            let is_later = |other: &T| came(other) > came(&item);
            let goes_after = |group: &Group<T>| match group.kind {
                GroupKind::Interrupting => group.items.last().is_some_and(is_later),
                _ => group.items.first().is_some_and(is_later),
            };
            let place = self.ready.iter().position(goes_after).unwrap_or(self.ready.len());
            match self.ready.get_mut(place).filter(|group| group.kind == GroupKind::Interrupting) {
                Some(group) => {
                    let place = group.items.iter().position(is_later).unwrap_or(group.items.len());
                    group.items.insert(place, item);
                }
                None => self.ready.insert(place, Group { items: vec![item], kind: GroupKind::Waiting }),
            }
        }
    }

    /// Events that become one turn, before everything that waits.
    pub fn put_first(&mut self, items: Vec<T>) {
        self.ready.push_front(Group { items, kind: GroupKind::Closed });
    }

    /// The events of the next turn.
    pub fn next(&mut self, now: Duration) -> Option<Vec<T>> {
        if let Some(held) = self.held.take_if(|held| held.due <= now) {
            self.ready.push_back(Group { items: held.items, kind: GroupKind::Waiting });
        }
        self.ready.pop_front().map(|group| group.items)
    }

    /// When to look again although nothing arrives: a message is due, or the time ends in which others are let in.
    pub fn look_again(&self) -> Option<Duration> {
        let due = self.held.as_ref().map(|held| held.due);
        due.into_iter().chain(self.window).min()
    }

    /// Forgets a window that has ended.
    pub fn pass(&mut self, now: Duration) {
        self.window = self.window.filter(|until| now < *until);
    }

    /// Whether a turn can begin.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.held.is_none()
    }

    /// Everything that waits, to be told something.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let held = self.held.iter_mut().flat_map(|held| &mut held.items);
        self.ready.iter_mut().flat_map(|group| &mut group.items).chain(held)
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
