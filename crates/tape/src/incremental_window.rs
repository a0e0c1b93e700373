//! A window that is read on where it was left.

use capstan_protocol::{EntryId, TapeName};

use crate::{ContextWindow, Entry, EntryKind, StoreError, TapeRecord, TapeRepository, TapeSlice};

/// So many entries are asked for by their number: a store finds a few faster than all that there are.
const SMALL_READ_LIMIT: u64 = 32;

/// The window of a tape, kept between two looks at it. Of a tape that has only grown since, only what is new is read.
#[derive(Debug, Default)]
pub struct IncrementalWindow {
    /// The generation of the tape and its head, as far as the window has them.
    read_up_to: Option<(u32, EntryId)>,
    kinds: Vec<EntryKind>,
    window: ContextWindow,
}

impl IncrementalWindow {
    /// The window of this tape as it is now, with only these kinds of what follows the anchor; none stands for all. It must
    /// be the same tape each time.
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

    /// Reads the few entries that follow what the window has. A new anchor is among them, or there is none.
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
        let mut read = read_following(tapes, record.clone(), known, &with_anchors).await?;
        let Some(position) = read.iter().rposition(|entry| entry.kind == EntryKind::Anchor) else {
            self.window.following.extend(read);
            return Ok(());
        };
        let following = read.split_off(position + 1);
        let anchor = read.pop();
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
    let mut named = Vec::new();
    for id in anchor.named_messages().into_iter().filter(|id| *id < anchor.id) {
        named.extend(tapes.read_with_record(record.clone(), &TapeSlice::single(id)).await?);
    }
    let following = read_following(tapes, record, anchor.id, kinds).await?;
    Ok(ContextWindow { anchor: Some(anchor), named_messages: named, following })
}

/// The entries of these kinds that follow one, up to the head that the record has.
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
