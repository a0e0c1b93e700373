//! A window that is read on where it was left.

use capstan_protocol::{EntryId, TapeName};

use crate::{Entry, Kind, Slice, StoreError, TapeRecord, Tapes, Window};

/// So many entries are asked for by their number: a store finds a few faster than all that there are.
const FEW: u64 = 32;

/// The window of a tape, kept between two looks at it. Of a tape that has only grown since, only what is new is read.
#[derive(Debug, Default)]
pub struct GrowingWindow {
    /// The generation of the tape and its head, as far as the window has them.
    read: Option<(u32, EntryId)>,
    kinds: Vec<Kind>,
    window: Window,
}

impl GrowingWindow {
    /// The window of this tape as it is now, with only these kinds of what follows the anchor; none stands for all. It must
    /// be the same tape each time.
    pub async fn of(&mut self, tapes: &Tapes, tape: &TapeName, kinds: &[Kind]) -> Result<&mut Window, StoreError> {
        let Some(record) = tapes.record(tape).await? else {
            *self = Self::default();
            return Ok(&mut self.window);
        };
        let (generation, head) = (record.generation, record.head);
        let known = self.read.filter(|(known, _)| *known == generation && self.kinds == kinds).map(|(_, head)| head);
        if known == Some(head) {
            return Ok(&mut self.window);
        }
        match known {
            Some(known) if head.0.saturating_sub(known.0) <= FEW => self.read_few(tapes, record, known, kinds).await?,
            _ => {
                let anchor = tapes.read_of(record.clone(), &Slice::last_anchor()).await?.pop();
                let is_same = anchor.as_ref().map(|anchor| anchor.id) == self.window.anchor.as_ref().map(|a| a.id);
                match known.filter(|_| is_same) {
                    Some(known) => self.window.following.extend(following(tapes, record, known, kinds).await?),
                    None => self.window = from_anchor(tapes, record, anchor, kinds).await?,
                }
            }
        }
        if self.kinds != kinds {
            self.kinds = kinds.to_vec();
        }
        self.read = Some((generation, head));
        Ok(&mut self.window)
    }

    /// Reads the few entries that follow what the window has. A new anchor is among them, or there is none.
    async fn read_few(
        &mut self,
        tapes: &Tapes,
        record: TapeRecord,
        known: EntryId,
        kinds: &[Kind],
    ) -> Result<(), StoreError> {
        let mut with_anchors = kinds.to_vec();
        if !kinds.is_empty() && !kinds.contains(&Kind::Anchor) {
            with_anchors.push(Kind::Anchor);
        }
        let mut read = following(tapes, record.clone(), known, &with_anchors).await?;
        let Some(position) = read.iter().rposition(|entry| entry.kind == Kind::Anchor) else {
            self.window.following.extend(read);
            return Ok(());
        };
        let following = read.split_off(position + 1);
        let anchor = read.pop();
        self.window = match anchor {
            Some(anchor) if !anchor.named_messages().is_empty() => {
                from_anchor(tapes, record, Some(anchor), kinds).await?
            }
            anchor => Window { anchor, named: Vec::new(), following },
        };
        Ok(())
    }
}

async fn from_anchor(
    tapes: &Tapes,
    record: TapeRecord,
    anchor: Option<Entry>,
    kinds: &[Kind],
) -> Result<Window, StoreError> {
    let Some(anchor) = anchor else {
        let following = following(tapes, record, EntryId(0), kinds).await?;
        return Ok(Window { following, ..Window::default() });
    };
    let mut named = Vec::new();
    for id in anchor.named_messages().into_iter().filter(|id| *id < anchor.id) {
        named.extend(tapes.read_of(record.clone(), &Slice::just(id)).await?);
    }
    let following = following(tapes, record, anchor.id, kinds).await?;
    Ok(Window { anchor: Some(anchor), named, following })
}

/// The entries of these kinds that follow one, up to the head that the record has.
async fn following(
    tapes: &Tapes,
    record: TapeRecord,
    after: EntryId,
    kinds: &[Kind],
) -> Result<Vec<Entry>, StoreError> {
    let count = record.head.0.saturating_sub(after.0);
    let limit = usize::try_from(count).ok().filter(|_| count <= FEW);
    let slice = Slice { kinds: kinds.to_vec(), up_to: Some(record.head), limit, ..Slice::after(after) };
    tapes.read_of(record, &slice).await
}
