//! Questions about tapes.

use capstan_protocol::{EntryId, TapeName};

use super::Tapes;
use crate::{Entry, Query, Scan, Search, Slice, Start, StoreError};

impl Tapes {
    /// The entries a query asks for. An anchor it names and the tape does not have finds nothing.
    pub async fn query(&self, tape: &TapeName, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let Some(slice) = self.query_slice(tape, query).await? else { return Ok(Vec::new()) };
        match &query.text {
            None => self.read(tape, &slice).await,
            Some(text) => self.search(tape, &slice, &Search::new(text)).await,
        }
    }

    async fn search(&self, tape: &TapeName, slice: &Slice, search: &Search) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.record(tape).await? else { return Ok(Vec::new()) };
        let after = slice.after.unwrap_or_default().max(record.begins_after);
        self.read_chain(record, &Slice { after: Some(after), ..slice.clone() }, Some(search)).await
    }

    /// What a search finds in the rows of one tape. Only the store may have an index: what another tape store keeps is
    /// read.
    pub(super) async fn search_rows(
        &self,
        tape: &TapeName,
        slice: &Slice,
        search: &Search,
    ) -> Result<Vec<Entry>, StoreError> {
        if self.elsewhere.is_none() {
            return self.store.search(tape, slice, search).await;
        }
        let mut scan = Scan::new(search, slice);
        while let Some(page) = scan.page() {
            scan.look_at(self.read_rows(tape, &page).await?);
        }
        Ok(scan.found())
    }

    async fn query_slice(&self, tape: &TapeName, query: &Query) -> Result<Option<Slice>, StoreError> {
        let after = match &query.start {
            Start::Beginning => Some(EntryId(0)),
            Start::LastAnchor => self.last_anchor(tape).await?.map(|anchor| anchor.id),
            Start::Anchor(name) => {
                let named = Slice { anchor: Some(name.clone()), ..Slice::last_anchor() };
                self.read(tape, &named).await?.pop().map(|anchor| anchor.id)
            }
            Start::After(id) => Some(*id),
        };
        let Some(after) = after else { return Ok(None) };
        let mut slice = Slice {
            after: Some(after),
            kinds: query.kinds.clone(),
            dated: query.dated,
            order: query.order,
            limit: query.limit,
            ..Slice::default()
        };
        if let Some(name) = &query.until_anchor {
            let first = Slice { anchor: Some(name.clone()), limit: Some(1), ..Slice::after(after) };
            let Some(anchor) = self.read(tape, &first).await?.pop() else { return Ok(None) };
            slice.up_to = Some(EntryId(anchor.id.0.saturating_sub(1)));
        }
        Ok(Some(slice))
    }
}
