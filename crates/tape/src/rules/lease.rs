//! Who gets a lease.

use capstan_protocol::{TapeName, Timestamp};

use crate::{LeaseEpoch, LeaseRecord, OwnerLiveness};

/// Somebody who wants a tape's lease. See [`Fact::TakeLease`].
pub(super) struct LeaseRequest<'a> {
    pub(super) tape: &'a TapeName,
    pub(super) owner: &'a str,
    pub(super) now: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) owner_liveness: Option<&'a OwnerLiveness>,
}

/// The lease as it is after somebody asked for it; nothing when another holds it.
pub(super) fn grant_lease(current: Option<&LeaseRecord>, wish: &LeaseRequest<'_>) -> Option<LeaseRecord> {
    let epoch = match current {
        None => LeaseEpoch(1),
        Some(lease) => {
            let next = LeaseEpoch(lease.epoch.0 + 1);
            match &lease.owner {
                None => next,
                Some(owner) if *owner == wish.owner => lease.epoch,
                Some(owner) if is_expired(owner, lease.expires_at, wish) => next,
                Some(_) => return None,
            }
        }
    };
    Some(LeaseRecord {
        tape: wish.tape.clone(),
        epoch,
        owner: Some(wish.owner.to_owned()),
        expires_at: wish.expires_at,
    })
}

/// Whether an owner has lost its lease. Time decides only where nothing better is known.
fn is_expired(owner: &str, until: Timestamp, wish: &LeaseRequest<'_>) -> bool {
    match wish.owner_liveness {
        Some(judged) if judged.owner == owner => !judged.is_alive,
        _ => until <= wish.now,
    }
}
