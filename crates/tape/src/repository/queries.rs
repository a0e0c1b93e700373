//! Queries on tapes.

use capstan_protocol::{EntryId, TapeName};

use super::TapeRepository;
use crate::{Entry, Query, QueryStart, SearchScan, StoreError, TapeSlice, TextSearch};

impl TapeRepository {
    /// Entries that satisfy a query. A query with an anchor that the tape does not have finds nothing.
    pub async fn query(&self, tape: &TapeName, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let Some(slice) = self.query_slice(tape, query).await? else { return Ok(Vec::new()) };
        match &query.text {
            None => self.read(tape, &slice).await,
            Some(text) => self.search(tape, &slice, &TextSearch::new(text)).await,
        }
    }

    async fn search(&self, tape: &TapeName, slice: &TapeSlice, search: &TextSearch) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.record(tape).await? else { return Ok(Vec::new()) };
        let after = slice.after.unwrap_or_default().max(record.begins_after);
        self.read_with_ancestors(record, &TapeSlice { after: Some(after), ..slice.clone() }, Some(search)).await
    }

    /// Matches of a search in the rows of one tape. With an external tape store, which has no index, all rows are read.
    pub(super) async fn search_rows(
        &self,
        tape: &TapeName,
        slice: &TapeSlice,
        search: &TextSearch,
    ) -> Result<Vec<Entry>, StoreError> {
        if self.external_store.is_none() {
            return self.store.search(tape, slice, search).await;
        }
        let mut scan = SearchScan::new(search, slice);
        while let Some(page) = scan.next_page() {
            scan.push_page(self.read_rows(tape, &page).await?);
        }
        Ok(scan.matches())
    }

    async fn query_slice(&self, tape: &TapeName, query: &Query) -> Result<Option<TapeSlice>, StoreError> {
        let after = match &query.start {
            QueryStart::Beginning => Some(EntryId(0)),
            QueryStart::LastAnchor => self.last_anchor(tape).await?.map(|anchor| anchor.id),
            QueryStart::Anchor(name) => {
                let newest = TapeSlice { anchor: Some(name.clone()), ..TapeSlice::last_anchor() };
                self.read(tape, &newest).await?.pop().map(|anchor| anchor.id)
            }
            QueryStart::After(id) => Some(*id),
        };
        let Some(after) = after else { return Ok(None) };
        let mut slice = TapeSlice {
            after: Some(after),
            kinds: query.kinds.clone(),
            date_range: query.date_range,
            order: query.order,
            limit: query.limit,
            ..TapeSlice::default()
        };
        if let Some(name) = &query.until_anchor {
            let first = TapeSlice { anchor: Some(name.clone()), limit: Some(1), ..TapeSlice::after(after) };
            let Some(anchor) = self.read(tape, &first).await?.pop() else { return Ok(None) };
            slice.up_to = Some(EntryId(anchor.id.0.saturating_sub(1)));
        }
        Ok(Some(slice))
    }
}
