//! Hash chains over both stores, and heads that were kept elsewhere.

use std::collections::HashMap;

use capstan_protocol::EntryId;

use super::TapeRepository;
use crate::{
    ChainBreak, ChainCheck, ChainHash, ChainHead, ChainLink, ChainedEntry, Entry, IntegrityProblem, StoreError,
    TapeRecord,
};

/// Number of hashes that are read at once.
const CHAIN_PAGE_SIZE: usize = 4096;

/// Finds the reason why a head is no part of the chain of its tape.
pub(super) async fn check_head(
    tapes: &TapeRepository,
    head: &ChainHead,
) -> Result<Option<IntegrityProblem>, StoreError> {
    let ChainHead { tape, id, hash } = head;
    let problem = |message: String| Ok(Some(IntegrityProblem { tape: Some(tape.clone()), message }));
    let Some(record) = tapes.record(tape).await? else {
        return problem(format!("the tape is missing, but entry {id} was its head"));
    };
    if record.head < *id {
        return problem(format!("entry {id} was its head, but the tape ends at entry {}", record.head));
    }
    match last_link(tapes, &record, *id).await? {
        Some(link) if link.id == *id && link.hash == *hash => Ok(None),
        // The chain of a tape without hashed entries proves nothing, but is not broken either.
        None if *hash == ChainHash::START => Ok(None),
        Some(link) if link.id == *id => {
            problem(format!("the hash of entry {id} differs from that of the kept head: an entry was changed"))
        }
        _ => problem(format!("entry {id} was its head, but is missing")),
    }
}

/// First break of the chain in the external tape store. Entries that were never in the store have no hashes.
pub(super) async fn find_replica_break(
    tapes: &TapeRepository,
    record: &TapeRecord,
    entries: &[Entry],
) -> Result<Option<ChainBreak>, StoreError> {
    let hashes = replicated_hashes(tapes, record).await?;
    let (Some(first), Some(head)) = (hashes.first(), hashes.last().copied()) else { return Ok(None) };
    let before = EntryId(first.id.0.saturating_sub(1));
    let start = last_link(tapes, record, before).await?.map(|link| link.hash).unwrap_or_default();
    let mut check = ChainCheck::new(record, ChainLink { id: before, hash: start });
    let by_id: HashMap<EntryId, ChainHash> = hashes.iter().map(|link| (link.id, link.hash)).collect();
    let mut covered: Vec<&Entry> = entries.iter().filter(|entry| first.id <= entry.id && entry.id <= head.id).collect();
    covered.sort_by_key(|entry| entry.id);
    for entry in covered {
        check.push(ChainedEntry::new(entry, by_id.get(&entry.id).copied()));
    }
    Ok(check.finish(head))
}

/// Hashes of the replicated entries of a tape.
async fn replicated_hashes(tapes: &TapeRepository, record: &TapeRecord) -> Result<Vec<ChainLink>, StoreError> {
    let mut hashes: Vec<ChainLink> = Vec::new();
    loop {
        let after = hashes.last().map(|link| link.id).unwrap_or_default();
        let page = tapes.store.chain_page(&record.name, after, CHAIN_PAGE_SIZE).await?;
        let is_last = page.len() < CHAIN_PAGE_SIZE;
        let replicated = page.iter().take_while(|link| link.id <= record.replicated_up_to).count();
        hashes.extend(&page[..replicated]);
        if is_last || replicated < page.len() {
            return Ok(hashes);
        }
    }
}

/// Newest hashed entry of a tape or its ancestors, up to a position.
async fn last_link(
    tapes: &TapeRepository,
    record: &TapeRecord,
    position: EntryId,
) -> Result<Option<ChainLink>, StoreError> {
    let (mut record, mut position) = (record.clone(), position);
    loop {
        if let Some(link) = tapes.store.chain_link(&record.name, position).await? {
            return Ok(Some(link));
        }
        let Some(fork) = record.fork else { return Ok(None) };
        position = position.min(fork.position);
        let Some(parent) = tapes.record(&fork.parent).await? else { return Ok(None) };
        record = parent;
    }
}
