//! Read-only handle to one tape, for plugins.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_protocol::{ChatMessage, EntryId, TapeName};

use crate::{ContextWindow, DefaultView, Entry, EntryKind, EntryOrder, Query, StoreError, TapeRepository, TapeSlice};

/// Read-only handle to the current generation of one tape. Cheap to clone; clones share the limit of reads.
///
/// It has no way to write and none to another tape. A page has at most [`MAX_PAGE_ENTRIES`](Self::MAX_PAGE_ENTRIES)
/// entries, a window at most [`MAX_WINDOW_ENTRIES`](Self::MAX_WINDOW_ENTRIES), and a handle serves at most
/// [`MAX_READS`](Self::MAX_READS) reads.
#[derive(Clone)]
pub struct TapeReader {
    tapes: TapeRepository,
    tape: TapeName,
    read_count: Arc<AtomicUsize>,
}

/// Start of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WindowStart {
    /// Newest anchor, as in the default view.
    #[default]
    LastAnchor,
    /// Newest anchor with this name.
    Anchor(String),
    /// Beginning of the tape.
    Beginning,
}

/// Window of a tape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeWindow {
    /// Entries of the window.
    pub window: ContextWindow,
    /// Older entries of the window are omitted, because it has too many.
    pub is_truncated: bool,
}

impl TapeWindow {
    /// Messages of the window in the default view.
    pub fn messages(&self) -> Vec<ChatMessage> {
        DefaultView.messages(&self.window)
    }
}

/// Error of a read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TapeReadError {
    /// The tape has no anchor with this name.
    #[error("there is no anchor named {0:?}")]
    NoAnchor(String),
    /// The handle has served the maximum number of reads.
    #[error("more than {} reads of the tape", TapeReader::MAX_READS)]
    TooManyReads,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TapeReader {
    /// Maximum number of entries of a page.
    pub const MAX_PAGE_ENTRIES: usize = 200;
    /// Maximum number of entries of a window that does not start at the newest anchor.
    pub const MAX_WINDOW_ENTRIES: usize = 2000;
    /// Maximum number of reads of a handle.
    pub const MAX_READS: usize = 500;

    /// Handle to this tape.
    pub fn new(tapes: TapeRepository, tape: TapeName) -> Self {
        Self { tapes, tape, read_count: Arc::default() }
    }

    /// Name of the tape.
    pub fn tape(&self) -> &TapeName {
        &self.tape
    }

    /// Window from an anchor or from the beginning on, with the kinds of entries that the default view shows. Only the window
    /// of the newest anchor is complete in any case, so that the cost of the others does not grow with the tape.
    pub async fn window(&self, start: WindowStart) -> Result<TapeWindow, TapeReadError> {
        self.count_read()?;
        let anchor = match start {
            WindowStart::LastAnchor => {
                let window = self.tapes.window_of_kinds(&self.tape, DefaultView::KINDS).await?;
                return Ok(TapeWindow { window, is_truncated: false });
            }
            WindowStart::Beginning => None,
            WindowStart::Anchor(name) => {
                let newest = TapeSlice { anchor: Some(name.clone()), ..TapeSlice::last_anchor() };
                Some(self.tapes.read(&self.tape, &newest).await?.pop().ok_or(TapeReadError::NoAnchor(name))?)
            }
        };
        let slice = TapeSlice {
            kinds: DefaultView::KINDS.to_vec(),
            order: EntryOrder::NewestFirst,
            limit: Some(Self::MAX_WINDOW_ENTRIES + 1),
            ..TapeSlice::after(anchor.as_ref().map_or(EntryId(0), |anchor| anchor.id))
        };
        let mut following = self.tapes.read(&self.tape, &slice).await?;
        let is_truncated = following.len() > Self::MAX_WINDOW_ENTRIES;
        following.truncate(Self::MAX_WINDOW_ENTRIES);
        following.reverse();
        let mut named_messages = Vec::new();
        for id in anchor.iter().flat_map(|anchor| anchor.named_messages().into_iter().filter(|id| *id < anchor.id)) {
            named_messages.extend(self.tapes.read(&self.tape, &TapeSlice::single(id)).await?);
        }
        Ok(TapeWindow { window: ContextWindow { anchor, named_messages, following }, is_truncated })
    }

    /// Page of entries. The next page begins after the last entry of this one, or before it if the order is newest first.
    pub async fn read(&self, slice: &TapeSlice) -> Result<Vec<Entry>, TapeReadError> {
        self.count_read()?;
        let slice = TapeSlice { limit: Some(page_limit(slice.limit)), ..slice.clone() };
        Ok(self.tapes.read(&self.tape, &slice).await?)
    }

    /// Page of the entries that match a query.
    pub async fn query(&self, query: &Query) -> Result<Vec<Entry>, TapeReadError> {
        self.count_read()?;
        let query = Query { limit: Some(page_limit(query.limit)), ..query.clone() };
        Ok(self.tapes.query(&self.tape, &query).await?)
    }

    /// Entries of the default view that match a text, newest first.
    pub async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, TapeReadError> {
        let kinds = DefaultView::KINDS.to_vec();
        self.query(&Query { kinds, limit: Some(limit), ..Query::search(text) }).await
    }

    /// Anchors, newest first.
    pub async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, TapeReadError> {
        let kinds = vec![EntryKind::Anchor];
        let order = EntryOrder::NewestFirst;
        self.read(&TapeSlice { kinds, order, limit: Some(limit), ..TapeSlice::default() }).await
    }

    fn count_read(&self) -> Result<(), TapeReadError> {
        let is_allowed = self.read_count.fetch_add(1, Ordering::Relaxed) < Self::MAX_READS;
        if is_allowed { Ok(()) } else { Err(TapeReadError::TooManyReads) }
    }
}

fn page_limit(requested: Option<usize>) -> usize {
    requested.unwrap_or(TapeReader::MAX_PAGE_ENTRIES).min(TapeReader::MAX_PAGE_ENTRIES)
}

impl fmt::Debug for TapeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TapeReader").field(&self.tape).finish()
    }
}
