//! Mailbox of a session: queues events and chooses the next turn. Decisions are pure functions, without a clock and
//! without I/O.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_hooks::contracts::DebounceOptions;
use capstan_protocol::AdmissionMode;

/// Queued events of a session.
///
/// Times are durations since the session became active.
#[derive(Debug)]
pub struct SessionMailbox<T> {
    /// Turns that can begin, in the order in which they run.
    ready: VecDeque<QueuedTurn<T>>,
    /// Messages that are delayed until the quiet period or the maximum wait has passed.
    debounced: Option<DebouncedMessages<T>>,
    /// End of the active window, in which unaddressed messages are accepted.
    active_until: Option<Duration>,
}

/// Events that become one turn.
#[derive(Debug)]
struct QueuedTurn<T> {
    events: Vec<T>,
    kind: QueuedTurnKind,
}

#[derive(Debug, PartialEq, Eq)]
enum QueuedTurnKind {
    /// Never joined with other events: a command, a standalone event, a recovered turn, or a turn that was put back.
    Exclusive,
    /// Messages with a turn of their own, unless an interrupting message absorbs them.
    Absorbable,
    /// Messages of mode `collect`: the next ones join until the turn begins.
    Collecting,
    /// An interrupting message, after the messages it absorbed.
    Interrupting,
}

#[derive(Debug)]
struct DebouncedMessages<T> {
    events: Vec<T>,
    first_at: Duration,
    due_at: Duration,
}

/// Properties of an arriving event that determine its admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventArrival {
    /// Treatment while a turn is running or queued.
    pub mode: AdmissionMode,
    /// Kind of event.
    pub kind: ArrivalKind,
    /// Debounce options; `None`: the message is not delayed.
    pub debounce: Option<DebounceOptions>,
}

impl EventArrival {
    /// Arrival of a message that waits for its turn.
    pub fn follow_up() -> Self {
        let kind = ArrivalKind::Message { addressed: true };
        Self { mode: AdmissionMode::FollowUp, kind, debounce: None }
    }

    /// Returns true for a concurrent command or an interrupting message. These do not wait for the queued events, so a
    /// full queue must not reject them.
    pub fn can_bypass_queue(&self) -> bool {
        match self.kind {
            ArrivalKind::ConcurrentCommand => true,
            ArrivalKind::Message { .. } => self.mode == AdmissionMode::Interrupt,
            ArrivalKind::Command | ArrivalKind::Standalone => false,
        }
    }
}

/// Kind of an arriving event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    /// A message.
    Message {
        /// The message is addressed to the bot.
        addressed: bool,
    },
    /// A command: never debounced and never ingested into a run.
    Command,
    /// A command that runs at once, concurrently with a turn. While the session is idle, treated as a command.
    ConcurrentCommand,
    /// An event that is not a message, or that came with its own binding. Gets a turn of its own after all queued
    /// events, whatever its mode (except `drop`): it absorbs no events, is not absorbed and interrupts no turn.
    Standalone,
}

/// Activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionActivity {
    /// No turn is running.
    Idle,
    /// A turn is running.
    Busy,
}

/// Decision about an arriving event.
#[derive(Debug, PartialEq, Eq)]
pub enum MailboxDecision<T> {
    /// The event was queued; no further action.
    Wait,
    /// Offer the event to the current run.
    Steer(T),
    /// The event was queued; cancel the current run.
    Interrupt,
    /// Begin a turn for the event at once, concurrently with the current one.
    RunConcurrently(T),
    /// Drop the event.
    Drop(T),
}

impl<T> Default for SessionMailbox<T> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), debounced: None, active_until: None }
    }
}

impl<T> SessionMailbox<T> {
    /// Decides about an arriving event. The event is queued, or returned in the decision.
    pub fn admit(
        &mut self,
        event: T,
        arrival: &EventArrival,
        activity: SessionActivity,
        now: Duration,
    ) -> MailboxDecision<T> {
        let addressed = match arrival.kind {
            ArrivalKind::ConcurrentCommand if activity == SessionActivity::Busy => {
                return MailboxDecision::RunConcurrently(event);
            }
            ArrivalKind::ConcurrentCommand | ArrivalKind::Command | ArrivalKind::Standalone => true,
            ArrivalKind::Message { addressed } => addressed,
        };
        if let Some(window) = arrival.debounce.and_then(|debounce| debounce.active_window) {
            let is_active = self.active_until.is_some_and(|until| now < until);
            if addressed {
                self.active_until = Some(now + window);
            } else if !is_active {
                return MailboxDecision::Drop(event);
            }
        }
        let needs_own_turn = !matches!(arrival.kind, ArrivalKind::Message { .. });
        match (activity, arrival.mode) {
            (SessionActivity::Busy, AdmissionMode::Drop) => return MailboxDecision::Drop(event),
            _ if arrival.kind == ArrivalKind::Standalone => {}
            // Steering must not overtake queued events, such as a command that changes the session first.
            (SessionActivity::Busy, AdmissionMode::Steer) if !needs_own_turn && self.is_empty() => {
                return MailboxDecision::Steer(event);
            }
            (SessionActivity::Busy, AdmissionMode::Interrupt) => {
                self.interrupt(event, needs_own_turn);
                return MailboxDecision::Interrupt;
            }
            // No turn to cancel, but queued messages would otherwise get their turns before this one.
            (SessionActivity::Idle, AdmissionMode::Interrupt) if self.is_ready() => {
                self.interrupt(event, needs_own_turn);
                return MailboxDecision::Wait;
            }
            _ => {}
        }
        match arrival.debounce {
            Some(debounce) if !needs_own_turn => self.debounce(event, debounce, addressed, now),
            _ => self.enqueue(event, arrival.mode, needs_own_turn),
        }
        MailboxDecision::Wait
    }

    /// Queues an interrupting event last. A message absorbs the queued messages into its turn: they were sent before it
    /// and count as part of the same request. Exclusive turns and the turns before them are not absorbed. A command
    /// absorbs nothing.
    fn interrupt(&mut self, event: T, needs_own_turn: bool) {
        if needs_own_turn {
            return self.push_back(event);
        }
        let first_absorbed =
            self.ready.iter().rposition(|turn| turn.kind == QueuedTurnKind::Exclusive).map_or(0, |last| last + 1);
        let debounced = self.debounced.take().into_iter().flat_map(|messages| messages.events);
        let ready = self.ready.drain(first_absorbed..).flat_map(|turn| turn.events);
        let mut events: Vec<T> = ready.chain(debounced).collect();
        events.push(event);
        self.ready.push_back(QueuedTurn { events, kind: QueuedTurnKind::Interrupting });
    }

    fn debounce(&mut self, event: T, debounce: DebounceOptions, addressed: bool, now: Duration) {
        let empty = DebouncedMessages { events: Vec::new(), first_at: now, due_at: now };
        let messages = self.debounced.get_or_insert(empty);
        messages.events.push(event);
        let max_due_at = messages.first_at + debounce.max_wait;
        // An unaddressed message expects no reply, so it may wait for the maximum time.
        messages.due_at =
            if addressed { max_due_at.min(now + debounce.quiet_period) } else { messages.due_at.max(max_due_at) };
    }

    fn enqueue(&mut self, event: T, mode: AdmissionMode, needs_own_turn: bool) {
        if needs_own_turn {
            return self.push_back(event);
        }
        let kind = if mode == AdmissionMode::Collect { QueuedTurnKind::Collecting } else { QueuedTurnKind::Absorbable };
        match self.ready.back_mut().filter(|turn| kind == QueuedTurnKind::Collecting && turn.kind == kind) {
            Some(turn) => turn.events.push(event),
            None => self.ready.push_back(QueuedTurn { events: vec![event], kind }),
        }
    }

    /// Queues an event for a turn of its own, after all others.
    pub fn push_back(&mut self, event: T) {
        self.ready.push_back(QueuedTurn { events: vec![event], kind: QueuedTurnKind::Exclusive });
    }

    /// Queues events that were offered to a run and not ingested. Each gets a turn of its own at its position in the
    /// order of arrival. If that position is right before the turn of a later interrupting message, it joins that turn.
    /// `arrival_order` returns the sort key of an event.
    pub fn requeue<K: Ord>(&mut self, events: Vec<T>, arrival_order: impl Fn(&T) -> K) {
        for event in events {
            let is_later = |other: &T| arrival_order(other) > arrival_order(&event);
            let is_later_turn = |turn: &QueuedTurn<T>| match turn.kind {
                QueuedTurnKind::Interrupting => turn.events.last().is_some_and(is_later),
                _ => turn.events.first().is_some_and(is_later),
            };
            let index = self.ready.iter().position(is_later_turn).unwrap_or(self.ready.len());
            match self.ready.get_mut(index).filter(|turn| turn.kind == QueuedTurnKind::Interrupting) {
                Some(turn) => {
                    let index = turn.events.iter().position(is_later).unwrap_or(turn.events.len());
                    turn.events.insert(index, event);
                }
                None => self.ready.insert(index, QueuedTurn { events: vec![event], kind: QueuedTurnKind::Absorbable }),
            }
        }
    }

    /// Puts events back as one turn, before all others.
    pub fn push_front(&mut self, events: Vec<T>) {
        self.ready.push_front(QueuedTurn { events, kind: QueuedTurnKind::Exclusive });
    }

    /// Queues recovered events as one turn, before the first turn that begins with a later event. `arrival_order`
    /// returns the sort key of an event.
    pub fn insert_turn<K: Ord>(&mut self, events: Vec<T>, arrival_order: impl Fn(&T) -> K) {
        let first = events.first().map(&arrival_order);
        let is_later = |turn: &QueuedTurn<T>| turn.events.first().map(&arrival_order) > first;
        let index = self.ready.iter().position(is_later).unwrap_or(self.ready.len());
        self.ready.insert(index, QueuedTurn { events, kind: QueuedTurnKind::Exclusive });
    }

    /// Queues debounced messages that are due, then removes the next turn and returns its events.
    pub fn next_turn(&mut self, now: Duration) -> Option<Vec<T>> {
        if let Some(messages) = self.debounced.take_if(|messages| messages.due_at <= now) {
            self.ready.push_back(QueuedTurn { events: messages.events, kind: QueuedTurnKind::Absorbable });
        }
        self.ready.pop_front().map(|turn| turn.events)
    }

    /// Time at which debounced messages are due or the active window ends, whichever is earlier. Nothing else changes the
    /// mailbox without an arrival.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let due_at = self.debounced.as_ref().map(|messages| messages.due_at);
        due_at.into_iter().chain(self.active_until).min()
    }

    /// Clears an active window that has ended.
    pub fn expire_window(&mut self, now: Duration) {
        self.active_until = self.active_until.filter(|until| now < *until);
    }

    /// Returns true if a turn is queued. Debounced messages do not count before [`next_turn`](Self::next_turn) has queued
    /// them.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns true if there are neither queued turns nor debounced messages.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.debounced.is_none()
    }

    /// Iterates over the events of all queued turns, then the debounced messages.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let debounced = self.debounced.iter_mut().flat_map(|messages| &mut messages.events);
        self.ready.iter_mut().flat_map(|turn| &mut turn.events).chain(debounced)
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
