//! Search without an index.

use capstan_protocol::EntryId;

use crate::{Entry, EntryOrder, TapeSlice, TextSearch};

/// Number of entries that are read at once.
const SCAN_PAGE_SIZE: usize = 1000;

/// Search that reads all entries, without I/O of its own: it names the next page to read until the limit or the end of
/// the slice is reached.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use capstan_protocol::TapeName;
/// use capstan_tape::{MemoryTapeStore, SearchScan, TapeSlice, TapeStore, TextSearch};
///
/// let (tapes, tape) = (MemoryTapeStore::new(), TapeName::parse("demo")?);
/// let search = TextSearch::new("needle");
/// let mut scan = SearchScan::new(&search, &TapeSlice::all());
/// while let Some(page) = scan.next_page() {
///     scan.push_page(tapes.read(&tape, &page).await?);
/// }
/// assert!(scan.matches().is_empty());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SearchScan<'a> {
    search: &'a TextSearch,
    /// Unread rest of the slice; `None` at the end.
    rest: Option<TapeSlice>,
    limit: usize,
    matches: Vec<Entry>,
}

impl<'a> SearchScan<'a> {
    /// Search in a slice, in its order and up to its limit.
    pub fn new(search: &'a TextSearch, slice: &TapeSlice) -> Self {
        let rest = TapeSlice { limit: Some(SCAN_PAGE_SIZE), ..slice.clone() };
        let rest = Some(rest).filter(|_| !search.terms().is_empty());
        Self { search, rest, limit: slice.limit.unwrap_or(usize::MAX), matches: Vec::new() }
    }

    /// Next page to read, if any.
    pub fn next_page(&self) -> Option<TapeSlice> {
        self.rest.clone().filter(|_| self.matches.len() < self.limit)
    }

    /// Adds the entries of the page.
    pub fn push_page(&mut self, page: Vec<Entry>) {
        let last = page.last().map(|entry| entry.id);
        self.rest = self.rest.take().filter(|_| page.len() >= SCAN_PAGE_SIZE);
        if let (Some(rest), Some(last)) = (&mut self.rest, last) {
            match rest.order {
                EntryOrder::OldestFirst => rest.after = Some(last),
                EntryOrder::NewestFirst => rest.up_to = Some(EntryId(last.0.saturating_sub(1))),
            }
        }
        let remaining = self.limit.saturating_sub(self.matches.len());
        self.matches.extend(page.into_iter().filter(|entry| self.search.matches(entry)).take(remaining));
    }

    /// Matching entries.
    pub fn matches(self) -> Vec<Entry> {
        self.matches
    }
}
