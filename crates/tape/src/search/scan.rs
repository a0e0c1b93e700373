//! A search that reads everything.

use capstan_protocol::EntryId;

use crate::{Entry, Order, Search, Slice};

/// How many entries are read at once.
const PAGE: usize = 1000;

/// A search without an index: says what to read next until it has found enough, or there is no more.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use capstan_protocol::TapeName;
/// use capstan_tape::{MemoryTapes, Scan, Search, Slice, TapeStore};
///
/// let (tapes, tape) = (MemoryTapes::new(), TapeName::parse("demo")?);
/// let search = Search::new("needle");
/// let mut scan = Scan::new(&search, &Slice::all());
/// while let Some(page) = scan.page() {
///     scan.look_at(tapes.read(&tape, &page).await?);
/// }
/// assert!(scan.found().is_empty());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Scan<'a> {
    search: &'a Search,
    /// What has not been read yet; nothing when it is over.
    rest: Option<Slice>,
    limit: usize,
    found: Vec<Entry>,
}

impl<'a> Scan<'a> {
    /// A search in a slice, in its order and up to its limit.
    pub fn new(search: &'a Search, slice: &Slice) -> Self {
        let rest = Slice { limit: Some(PAGE), ..slice.clone() };
        let rest = Some(rest).filter(|_| !search.needles().is_empty());
        Self { search, rest, limit: slice.limit.unwrap_or(usize::MAX), found: Vec::new() }
    }

    /// What to read next, if anything.
    pub fn page(&self) -> Option<Slice> {
        self.rest.clone().filter(|_| self.found.len() < self.limit)
    }

    /// Looks at what was read.
    pub fn look_at(&mut self, page: Vec<Entry>) {
        let last = page.last().map(|entry| entry.id);
        self.rest = self.rest.take().filter(|_| page.len() >= PAGE);
        if let (Some(rest), Some(last)) = (&mut self.rest, last) {
            match rest.order {
                Order::OldestFirst => rest.after = Some(last),
                Order::NewestFirst => rest.up_to = Some(EntryId(last.0.saturating_sub(1))),
            }
        }
        let room = self.limit.saturating_sub(self.found.len());
        self.found.extend(page.into_iter().filter(|entry| self.search.finds(entry)).take(room));
    }

    /// What was found.
    pub fn found(self) -> Vec<Entry> {
        self.found
    }
}
