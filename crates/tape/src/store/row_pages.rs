//! Listings that are read page by page.

use std::future::Future;
use std::pin::Pin;
use std::vec;

use crate::StoreError;

/// Number of rows that a listing reads at once.
const STORE_PAGE_SIZE: usize = 256;

/// Future of one page of rows.
pub(crate) type RowPage<'a, T> = Pin<Box<dyn Future<Output = Result<Vec<T>, StoreError>> + Send + 'a>>;

/// Rows of a listing, read page by page: only one page is in memory.
///
/// Every page continues after the last row of the previous page. Rows that are written in the meantime are included if
/// they come after that row.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), capstan_tape::StoreError> {
/// use capstan_tape::{JournalStore as _, MemoryStore};
///
/// let store = MemoryStore::new();
/// let mut tapes = store.tapes();
/// while let Some(tape) = tapes.next().await? {
///     println!("{}", tape.name);
/// }
/// # Ok(()) }
/// ```
#[must_use = "a listing reads nothing until its rows are requested"]
pub struct RowPages<'a, T> {
    fetch: Box<dyn FnMut(Option<T>, usize) -> RowPage<'a, T> + Send + 'a>,
    page: vec::IntoIter<T>,
    /// Last row of the page, while another page may follow.
    last: Option<T>,
    is_started: bool,
}

impl<'a, T: Clone> RowPages<'a, T> {
    /// Listing whose pages are read by `fetch`, with the last row of the previous page and the number of rows as
    /// arguments.
    pub(crate) fn new(fetch: impl FnMut(Option<T>, usize) -> RowPage<'a, T> + Send + 'a) -> Self {
        Self { fetch: Box::new(fetch), page: Vec::new().into_iter(), last: None, is_started: false }
    }

    /// Next row; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<T>, StoreError> {
        if let Some(row) = self.page.next() {
            return Ok(Some(row));
        }
        if self.is_started && self.last.is_none() {
            return Ok(None);
        }
        let page = (self.fetch)(self.last.clone(), STORE_PAGE_SIZE).await?;
        self.is_started = true;
        // A page with fewer rows than requested is the last one.
        self.last = page.last().filter(|_| page.len() >= STORE_PAGE_SIZE).cloned();
        self.page = page.into_iter();
        Ok(self.page.next())
    }

    /// All rows at once: for listings that are known to be short, and for tests.
    pub async fn collect(mut self) -> Result<Vec<T>, StoreError> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await? {
            rows.push(row);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{RowPages, STORE_PAGE_SIZE};
    use crate::StoreError;

    fn numbers(count: usize, fetches: &Arc<AtomicUsize>) -> RowPages<'static, usize> {
        let fetches = Arc::clone(fetches);
        RowPages::new(move |after: Option<usize>, limit| {
            fetches.fetch_add(1, Ordering::SeqCst);
            let first = after.map_or(0, |after| after + 1);
            Box::pin(async move { Ok((first..count).take(limit).collect()) })
        })
    }

    #[tokio::test]
    async fn listing_has_every_row_once() {
        for count in [0, 1, STORE_PAGE_SIZE - 1, STORE_PAGE_SIZE, STORE_PAGE_SIZE + 1, 3 * STORE_PAGE_SIZE] {
            let fetches = Arc::default();
            let rows = numbers(count, &fetches).collect().await.unwrap();
            assert_eq!(rows, (0..count).collect::<Vec<_>>());
            assert_eq!(fetches.load(Ordering::SeqCst), count / STORE_PAGE_SIZE + 1);
        }
    }

    #[tokio::test]
    async fn listing_reads_pages_on_demand_and_none_after_its_end() {
        let fetches = Arc::default();
        let mut rows = numbers(STORE_PAGE_SIZE + 1, &fetches);
        assert_eq!(fetches.load(Ordering::SeqCst), 0);
        assert_eq!(rows.next().await.unwrap(), Some(0));
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        while rows.next().await.unwrap().is_some() {}
        assert_eq!(rows.next().await.unwrap(), None);
        assert_eq!(fetches.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn failed_page_is_read_again() {
        let mut is_first = true;
        let mut rows = RowPages::new(move |_: Option<u8>, _| {
            let failed = std::mem::take(&mut is_first);
            let page = if failed { Err(StoreError::io("read", "it is busy")) } else { Ok(vec![7]) };
            Box::pin(async move { page })
        });
        assert!(rows.next().await.is_err());
        assert_eq!(rows.next().await.unwrap(), Some(7));
    }
}
