//! Rules of leases.

use capstan_protocol::{TapeName, Timestamp};

use crate::{LeaseEpoch, LeaseRecord, OwnerLiveness};

/// Request for the lease of a tape. See [`Fact::TakeLease`](crate::Fact::TakeLease).
pub(super) struct LeaseRequest<'a> {
    pub(super) tape: &'a TapeName,
    pub(super) owner: &'a str,
    pub(super) now: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) owner_liveness: Option<&'a OwnerLiveness>,
}

/// Lease after a request; `None` if another owner holds it.
pub(super) fn grant_lease(current: Option<&LeaseRecord>, request: &LeaseRequest<'_>) -> Option<LeaseRecord> {
    let epoch = match current {
        None => LeaseEpoch(1),
        Some(lease) => {
            let next = LeaseEpoch(lease.epoch.0 + 1);
            match &lease.owner {
                None => next,
                Some(owner) if *owner == request.owner => lease.epoch,
                Some(owner) if is_expired(owner, lease.expires_at, request) => next,
                Some(_) => return None,
            }
        }
    };
    Some(LeaseRecord {
        tape: request.tape.clone(),
        epoch,
        owner: Some(request.owner.to_owned()),
        expires_at: request.expires_at,
    })
}

/// Returns true if an owner has lost its lease. Time decides only if the liveness of the owner is unknown.
fn is_expired(owner: &str, expires_at: Timestamp, request: &LeaseRequest<'_>) -> bool {
    match request.owner_liveness {
        Some(liveness) if liveness.owner == owner => !liveness.is_alive,
        _ => expires_at <= request.now,
    }
}
