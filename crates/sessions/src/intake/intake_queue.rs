//! Intake queues: events of one conversation are accepted in the order in which they were submitted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::Event;
use tokio::sync::oneshot;

/// Queues of events that wait for acceptance, one for each conversation.
#[derive(Debug, Default, Clone)]
pub(crate) struct IntakeQueues(Arc<Mutex<QueueTails>>);

#[derive(Debug, Default)]
struct QueueTails {
    /// The last ticket of each queue: its number, and the receiver that closes when it is dropped.
    last_tickets: HashMap<ConversationKey, (u64, oneshot::Receiver<()>)>,
    ticket_count: u64,
}

/// The conversation of an event as its source names it, before its session is resolved.
type ConversationKey = [Option<String>; 5];

/// A position in a queue. Dropping it admits the next one.
#[derive(Debug)]
pub(crate) struct IntakeTicket {
    queues: IntakeQueues,
    conversation: ConversationKey,
    number: u64,
    predecessor: Option<oneshot::Receiver<()>>,
    /// Dropped with the ticket, which notifies the next one.
    _done_signal: oneshot::Sender<()>,
}

impl IntakeQueues {
    /// Joins the end of the queue of an event's conversation.
    pub(crate) fn join(&self, event: &Event) -> IntakeTicket {
        let conversation = [
            Some(event.source.to_string()),
            event.bot_id.clone(),
            event.conversation_id.clone(),
            event.thread_id.clone(),
            event.session_id.as_ref().map(ToString::to_string),
        ];
        let (done_signal, done) = oneshot::channel();
        let mut tails = self.lock();
        tails.ticket_count += 1;
        let number = tails.ticket_count;
        let predecessor = tails.last_tickets.insert(conversation.clone(), (number, done)).map(|(_, last)| last);
        IntakeTicket { queues: self.clone(), conversation, number, predecessor, _done_signal: done_signal }
    }

    /// Number of conversations with events in intake.
    pub(crate) fn queue_count(&self) -> usize {
        self.lock().last_tickets.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueueTails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IntakeTicket {
    /// Waits until the ticket before this one is dropped.
    pub(crate) async fn wait_for_predecessor(&mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            // Nothing is ever sent: the error of a dropped sender is the signal.
            let _closed = predecessor.await;
        }
    }
}

impl Drop for IntakeTicket {
    fn drop(&mut self) {
        let mut tails = self.queues.lock();
        if tails.last_tickets.get(&self.conversation).is_some_and(|(number, _)| *number == self.number) {
            tails.last_tickets.remove(&self.conversation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IntakeQueues;
    use capstan_protocol::Event;

    #[tokio::test]
    async fn g01_tickets_are_admitted_in_order_and_empty_queues_are_removed() {
        let queues = IntakeQueues::default();
        let event = |chat: &str| Event::message("c", chat, "hi");
        let mut first = queues.join(&event("1"));
        let mut second = queues.join(&event("1"));
        let mut other_chat = queues.join(&event("2"));
        first.wait_for_predecessor().await;
        other_chat.wait_for_predecessor().await;
        let waiting = futures::poll!(Box::pin(second.wait_for_predecessor()));
        assert!(waiting.is_pending(), "the first ticket is still held");
        drop(first);
        let mut third = queues.join(&event("1"));
        drop(second);
        third.wait_for_predecessor().await;
        drop((third, other_chat));
        assert!(queues.lock().last_tickets.is_empty());
    }
}
