//! Credit of a stream: the receiver's account and the sender's balance.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Credit that a receiver has given, and what it has to give back.
#[derive(Debug)]
pub struct CreditAccount {
    opening: i64,
    balance: i64,
    consumed: i64,
}

impl CreditAccount {
    /// Account of a stream that opens with this credit.
    pub fn new(opening: u32) -> Self {
        Self { opening: opening.into(), balance: opening.into(), consumed: 0 }
    }

    /// Charges an item. Returns false if the sender had no credit.
    pub fn charge(&mut self, cost: u32) -> bool {
        let has_credit = self.balance > 0;
        if has_credit {
            self.balance -= i64::from(cost);
        }
        has_credit
    }

    /// Records that an item was consumed. Returns the credit to give back now, if it is worth a message.
    pub fn consume(&mut self, cost: u32) -> Option<u32> {
        self.consumed += i64::from(cost);
        if self.consumed * 2 < self.opening && self.balance > 0 {
            return None;
        }
        self.balance += self.consumed;
        u32::try_from(std::mem::take(&mut self.consumed)).ok()
    }
}

/// Credit of a sender.
#[derive(Debug, Default)]
pub(crate) struct CreditBalance {
    state: Mutex<BalanceState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BalanceState {
    credit: i64,
    is_ended: bool,
}

impl CreditBalance {
    pub(crate) fn new(credit: u32) -> Self {
        Self { state: Mutex::new(BalanceState { credit: credit.into(), is_ended: false }), changed: Notify::new() }
    }

    pub(crate) fn add(&self, credit: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.credit = state.credit.saturating_add(credit.into());
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_ended = true;
        self.changed.notify_waiters();
    }

    /// Waits for credit and pays the cost. Returns false if the stream has ended.
    pub(crate) async fn pay(&self, cost: u32) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.is_ended {
                    return false;
                }
                if state.credit > 0 {
                    state.credit -= i64::from(cost);
                    return true;
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CreditAccount;

    #[test]
    fn k06_credit_is_given_back_by_halves_and_an_item_without_credit_is_refused() {
        let mut account = CreditAccount::new(4);
        assert!(account.charge(1) && account.charge(1));
        assert_eq!(account.consume(1), None);
        assert_eq!(account.consume(1), Some(2));
        assert!(account.charge(128), "an item may cost more than the rest of the credit");
        assert!(!account.charge(1));
        assert_eq!(account.consume(128), Some(128));
        assert!(account.charge(1));
    }

    #[test]
    fn k06_a_stream_with_a_credit_of_one_goes_on() {
        let mut account = CreditAccount::new(1);
        for _ in 0..10 {
            assert!(account.charge(1) && !account.charge(1));
            assert_eq!(account.consume(1), Some(1));
        }
    }
}
