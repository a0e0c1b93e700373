//! Who gets a lease.

use capstan_protocol::{TapeName, Timestamp};

use crate::{Epoch, Judged, LeaseRecord};

/// Somebody who wants a tape's lease. See [`Fact::TakeLease`].
pub(super) struct LeaseWish<'a> {
    pub(super) tape: &'a TapeName,
    pub(super) owner: &'a str,
    pub(super) now: Timestamp,
    pub(super) until: Timestamp,
    pub(super) judged: Option<&'a Judged>,
}

/// The lease as it is after somebody asked for it; nothing when another holds it.
pub(super) fn grant_lease(current: Option<&LeaseRecord>, wish: &LeaseWish<'_>) -> Option<LeaseRecord> {
    let epoch = match current {
        None => Epoch(1),
        Some(lease) => {
            let next = Epoch(lease.epoch.0 + 1);
            match &lease.owner {
                None => next,
                Some(owner) if *owner == wish.owner => lease.epoch,
                Some(owner) if is_over(owner, lease.until, wish) => next,
                Some(_) => return None,
            }
        }
    };
    Some(LeaseRecord { tape: wish.tape.clone(), epoch, owner: Some(wish.owner.to_owned()), until: wish.until })
}

/// Whether an owner has lost its lease. Time decides only where nothing better is known.
fn is_over(owner: &str, until: Timestamp, wish: &LeaseWish<'_>) -> bool {
    match wish.judged {
        Some(judged) if judged.owner == owner => !judged.alive,
        _ => until <= wish.now,
    }
}
