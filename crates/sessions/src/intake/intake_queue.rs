//! Events of one conversation are accepted in the order in which they were handed in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::Event;
use tokio::sync::oneshot;

/// Where events of one conversation stand in line.
#[derive(Debug, Default, Clone)]
pub(crate) struct IntakeQueues(Arc<Mutex<QueueTails>>);

#[derive(Debug, Default)]
struct QueueTails {
    /// The last in each line, by number, and how to hear that it is through.
    last_tickets: HashMap<ConversationKey, (u64, oneshot::Receiver<()>)>,
    ticket_count: u64,
}

/// What the source says about where an event belongs, before its session is resolved.
type ConversationKey = [Option<String>; 5];

/// A place in a line. Dropping it lets the next one through.
#[derive(Debug)]
pub(crate) struct IntakeTicket {
    queues: IntakeQueues,
    conversation: ConversationKey,
    number: u64,
    predecessor: Option<oneshot::Receiver<()>>,
    /// Dropped with the place, which is how the next one hears of it.
    _done_signal: oneshot::Sender<()>,
}

impl IntakeQueues {
    /// Takes the last place in the line of an event's conversation.
    pub(crate) fn join(&self, event: &Event) -> IntakeTicket {
        let conversation = [
            Some(event.source.to_string()),
            event.bot_id.clone(),
            event.conversation_id.clone(),
            event.thread_id.clone(),
            event.session_id.as_ref().map(ToString::to_string),
        ];
        let (through, heard) = oneshot::channel();
        let mut tails = self.lock();
        tails.ticket_count += 1;
        let number = tails.ticket_count;
        let before = tails.last_tickets.insert(conversation.clone(), (number, heard)).map(|(_, before)| before);
        IntakeTicket { queues: self.clone(), conversation, number, predecessor: before, _done_signal: through }
    }

    /// How many lines there are.
    pub(crate) fn queue_count(&self) -> usize {
        self.lock().last_tickets.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueueTails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IntakeTicket {
    /// Waits until those before are through.
    pub(crate) async fn wait_for_predecessor(&mut self) {
        if let Some(before) = self.predecessor.take() {
            // Whoever was before never sends anything: its going is the message.
            let _gone = before.await;
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
    async fn g01_a_line_is_passed_in_order_and_leaves_nothing_behind() {
        let lines = IntakeQueues::default();
        let event = |chat: &str| Event::message("c", chat, "hi");
        let mut first = lines.join(&event("1"));
        let mut second = lines.join(&event("1"));
        let mut elsewhere = lines.join(&event("2"));
        first.wait_for_predecessor().await;
        elsewhere.wait_for_predecessor().await;
        let waiting = futures::poll!(Box::pin(second.wait_for_predecessor()));
        assert!(waiting.is_pending(), "the first is not through");
        drop(first);
        let mut third = lines.join(&event("1"));
        drop(second);
        third.wait_for_predecessor().await;
        drop((third, elsewhere));
        assert!(lines.lock().last_tickets.is_empty());
    }
}
