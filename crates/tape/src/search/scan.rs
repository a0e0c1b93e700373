//! A search that reads everything.

use capstan_protocol::EntryId;

use crate::{Entry, EntryOrder, TapeSlice, TextSearch};

/// How many entries are read at once.
const SCAN_PAGE_SIZE: usize = 1000;

/// A search without an index: says what to read next until it has found enough, or there is no more.
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
    /// What has not been read yet; nothing when it is over.
    rest: Option<TapeSlice>,
    limit: usize,
    matches: Vec<Entry>,
}

impl<'a> SearchScan<'a> {
    /// A search in a slice, in its order and up to its limit.
    pub fn new(search: &'a TextSearch, slice: &TapeSlice) -> Self {
        let rest = TapeSlice { limit: Some(SCAN_PAGE_SIZE), ..slice.clone() };
        let rest = Some(rest).filter(|_| !search.terms().is_empty());
        Self { search, rest, limit: slice.limit.unwrap_or(usize::MAX), matches: Vec::new() }
    }

    /// What to read next, if anything.
    pub fn next_page(&self) -> Option<TapeSlice> {
        self.rest.clone().filter(|_| self.matches.len() < self.limit)
    }

    /// Looks at what was read.
    pub fn push_page(&mut self, page: Vec<Entry>) {
        let last = page.last().map(|entry| entry.id);
        self.rest = self.rest.take().filter(|_| page.len() >= SCAN_PAGE_SIZE);
        if let (Some(rest), Some(last)) = (&mut self.rest, last) {
            match rest.order {
                EntryOrder::OldestFirst => rest.after = Some(last),
                EntryOrder::NewestFirst => rest.up_to = Some(EntryId(last.0.saturating_sub(1))),
            }
        }
        let room = self.limit.saturating_sub(self.matches.len());
        self.matches.extend(page.into_iter().filter(|entry| self.search.matches(entry)).take(room));
    }

    /// What was found.
    pub fn matches(self) -> Vec<Entry> {
        self.matches
    }
}
