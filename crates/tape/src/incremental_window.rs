//! Incremental reading of a context window.

use capstan_protocol::{EntryId, TapeName};

use crate::{ContextWindow, Entry, EntryKind, StoreError, TapeRecord, TapeRepository, TapeSlice};

/// Maximum number of entries that are read with a limit, which is faster for stores than an open range.
const SMALL_READ_LIMIT: u64 = 32;

/// Cached context window of a tape. If the tape has only grown, a refresh reads only the new entries.
#[derive(Debug, Default)]
pub struct IncrementalWindow {
    /// Generation and head of the tape at the last refresh.
    read_up_to: Option<(u32, EntryId)>,
    kinds: Vec<EntryKind>,
    window: ContextWindow,
}

impl IncrementalWindow {
    /// Reads the current window of the tape, which must be the same for all calls. Of the entries after the anchor,
    /// only `kinds` are read; empty means all.
    pub async fn refresh(
        &mut self,
        tapes: &TapeRepository,
        tape: &TapeName,
        kinds: &[EntryKind],
    ) -> Result<&mut ContextWindow, StoreError> {
        let Some(record) = tapes.record(tape).await? else {
            *self = Self::default();
            return Ok(&mut self.window);
        };
        let (generation, head) = (record.generation, record.head);
        let known =
            self.read_up_to.filter(|(known, _)| *known == generation && self.kinds == kinds).map(|(_, head)| head);
        if known == Some(head) {
            return Ok(&mut self.window);
        }
        match known {
            Some(known) if head.0.saturating_sub(known.0) <= SMALL_READ_LIMIT => {
                self.read_new_entries(tapes, record, known, kinds).await?;
            }
            _ => {
                let anchor = tapes.read_with_record(record.clone(), &TapeSlice::last_anchor()).await?.pop();
                let is_same = anchor.as_ref().map(|anchor| anchor.id) == self.window.anchor.as_ref().map(|a| a.id);
                match known.filter(|_| is_same) {
                    Some(known) => self.window.following.extend(read_following(tapes, record, known, kinds).await?),
                    None => self.window = read_from_anchor(tapes, record, anchor, kinds).await?,
                }
            }
        }
        if self.kinds != kinds {
            self.kinds = kinds.to_vec();
        }
        self.read_up_to = Some((generation, head));
        Ok(&mut self.window)
    }

    /// Reads the few entries after `known`. A new anchor, if there is one, is among them.
    async fn read_new_entries(
        &mut self,
        tapes: &TapeRepository,
        record: TapeRecord,
        known: EntryId,
        kinds: &[EntryKind],
    ) -> Result<(), StoreError> {
        let mut with_anchors = kinds.to_vec();
        if !kinds.is_empty() && !kinds.contains(&EntryKind::Anchor) {
            with_anchors.push(EntryKind::Anchor);
        }
        let mut entries = read_following(tapes, record.clone(), known, &with_anchors).await?;
        let Some(position) = entries.iter().rposition(|entry| entry.kind == EntryKind::Anchor) else {
            self.window.following.extend(entries);
            return Ok(());
        };
        let following = entries.split_off(position + 1);
        let anchor = entries.pop();
        self.window = match anchor {
            Some(anchor) if !anchor.named_messages().is_empty() => {
                read_from_anchor(tapes, record, Some(anchor), kinds).await?
            }
            anchor => ContextWindow { anchor, named_messages: Vec::new(), following },
        };
        Ok(())
    }
}

async fn read_from_anchor(
    tapes: &TapeRepository,
    record: TapeRecord,
    anchor: Option<Entry>,
    kinds: &[EntryKind],
) -> Result<ContextWindow, StoreError> {
    let Some(anchor) = anchor else {
        let following = read_following(tapes, record, EntryId(0), kinds).await?;
        return Ok(ContextWindow { following, ..ContextWindow::default() });
    };
    let mut named_messages = Vec::new();
    for id in anchor.named_messages().into_iter().filter(|id| *id < anchor.id) {
        named_messages.extend(tapes.read_with_record(record.clone(), &TapeSlice::single(id)).await?);
    }
    let following = read_following(tapes, record, anchor.id, kinds).await?;
    Ok(ContextWindow { anchor: Some(anchor), named_messages, following })
}

/// Entries of these kinds after an entry, up to the head of the record.
async fn read_following(
    tapes: &TapeRepository,
    record: TapeRecord,
    after: EntryId,
    kinds: &[EntryKind],
) -> Result<Vec<Entry>, StoreError> {
    let count = record.head.0.saturating_sub(after.0);
    let limit = usize::try_from(count).ok().filter(|_| count <= SMALL_READ_LIMIT);
    let slice = TapeSlice { kinds: kinds.to_vec(), up_to: Some(record.head), limit, ..TapeSlice::after(after) };
    tapes.read_with_record(record, &slice).await
}
