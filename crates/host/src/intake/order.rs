//! Events of one conversation are accepted in the order in which they were handed in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::Event;
use tokio::sync::oneshot;

/// Where events of one conversation stand in line.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lines(Arc<Mutex<Tails>>);

#[derive(Debug, Default)]
struct Tails {
    /// The last in each line, by number, and how to hear that it is through.
    last: HashMap<Conversation, (u64, oneshot::Receiver<()>)>,
    entered: u64,
}

/// What the source says about where an event belongs, before its session is resolved.
type Conversation = [Option<String>; 5];

/// A place in a line. Dropping it lets the next one through.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Lines,
    conversation: Conversation,
    number: u64,
    before: Option<oneshot::Receiver<()>>,
    /// Dropped with the place, which is how the next one hears of it.
    _through: oneshot::Sender<()>,
}

impl Lines {
    /// Takes the last place in the line of an event's conversation.
    pub(crate) fn enter(&self, event: &Event) -> Place {
        let conversation = [
            Some(event.source.to_string()),
            event.bot_id.clone(),
            event.conversation_id.clone(),
            event.thread_id.clone(),
            event.session_id.as_ref().map(ToString::to_string),
        ];
        let (through, heard) = oneshot::channel();
        let mut tails = self.lock();
        tails.entered += 1;
        let number = tails.entered;
        let before = tails.last.insert(conversation.clone(), (number, heard)).map(|(_, before)| before);
        Place { lines: self.clone(), conversation, number, before, _through: through }
    }

    /// How many lines there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().last.len()
    }

    fn lock(&self) -> MutexGuard<'_, Tails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until those before are through.
    pub(crate) async fn reached(&mut self) {
        if let Some(before) = self.before.take() {
            // Whoever was before never sends anything: its going is the message.
            let _gone = before.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut tails = self.lines.lock();
        if tails.last.get(&self.conversation).is_some_and(|(number, _)| *number == self.number) {
            tails.last.remove(&self.conversation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use capstan_protocol::Event;

    #[tokio::test]
    async fn g01_a_line_is_passed_in_order_and_leaves_nothing_behind() {
        let lines = Lines::default();
        let event = |chat: &str| Event::message("c", chat, "hi");
        let mut first = lines.enter(&event("1"));
        let mut second = lines.enter(&event("1"));
        let mut elsewhere = lines.enter(&event("2"));
        first.reached().await;
        elsewhere.reached().await;
        let waiting = futures::poll!(Box::pin(second.reached()));
        assert!(waiting.is_pending(), "the first is not through");
        drop(first);
        let mut third = lines.enter(&event("1"));
        drop(second);
        third.reached().await;
        drop((third, elsewhere));
        assert!(lines.lock().last.is_empty());
    }
}
