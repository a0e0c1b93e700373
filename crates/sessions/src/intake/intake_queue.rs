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

/// Permit to accept an event of a conversation. Dropping it admits the next event.
#[derive(Debug)]
pub(crate) struct IntakeTicket {
    queues: IntakeQueues,
    conversation: ConversationKey,
    number: u64,
    /// Dropped with the ticket, which notifies the next one.
    _done_signal: oneshot::Sender<()>,
}

impl IntakeQueues {
    /// Joins the end of the queue of an event's conversation. The position is fixed when this returns; the future waits
    /// until the ticket before it is dropped.
    pub(crate) fn join(&self, event: &Event) -> impl Future<Output = IntakeTicket> + Send + use<> {
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
        let ticket = IntakeTicket { queues: self.clone(), conversation, number, _done_signal: done_signal };
        async move {
            if let Some(predecessor) = predecessor {
                // Nothing is ever sent: the error of a dropped sender is the signal.
                let _closed = predecessor.await;
            }
            ticket
        }
    }

    /// Number of conversations with events in intake.
    pub(crate) fn queue_count(&self) -> usize {
        self.lock().last_tickets.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueueTails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let first = queues.join(&event("1"));
        let mut second = Box::pin(queues.join(&event("1")));
        let other_chat = queues.join(&event("2"));
        let (first, other_chat) = (first.await, other_chat.await);
        assert!(futures::poll!(&mut second).is_pending(), "the first ticket is still held");
        drop(first);
        let third = queues.join(&event("1"));
        drop(second);
        drop((third.await, other_chat));
        assert!(queues.lock().last_tickets.is_empty());
    }
}
