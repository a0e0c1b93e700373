//! Slices as SQL. Every filter is pushed down, and the entries that a turn needs are found by index.

use capstan_protocol::TapeName;
use capstan_tape::{EntryKind, EntryOrder, TapeSlice};
use rusqlite::types::Value;

use super::columns::to_sql_integer;
use super::search::CandidateRows;

/// Columns of an entry, in the order in which `queries` reads them.
pub(super) const ENTRY_COLUMNS: &str = "id, kind, payload, meta, date, extra, payload_hash";

/// Query for a slice of a tape, with its values. Dates are compared in milliseconds; the reader applies the exact
/// range.
pub(super) fn entries_query(tape: &TapeName, slice: &TapeSlice) -> (String, Vec<Value>) {
    let mut query = SqlQuery { conditions: vec!["tape = ?".to_owned()], values: vec![text_value(tape.as_str())] };
    if let Some(id) = slice.after {
        query.add_condition("id > ?", [Value::Integer(to_sql_integer(id.0))]);
    }
    if let Some(id) = slice.up_to {
        query.add_condition("id <= ?", [Value::Integer(to_sql_integer(id.0))]);
    }
    let index = query.add_kind_condition(slice);
    query.add_date_condition(slice);
    let order = sort_direction(slice);
    let conditions = query.conditions.join(" AND ");
    let mut sql = format!("SELECT {ENTRY_COLUMNS} FROM entries{index} WHERE {conditions} ORDER BY id {order}");
    if let Some(limit) = slice.limit.filter(|_| slice.date_range.is_none()) {
        sql.push_str(" LIMIT ?");
        query.values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    (sql, query.values)
}

/// Query for the entries of a slice that may match a search, with its values. The reader applies the limit.
pub(super) fn candidates_query(
    tape: &TapeName,
    slice: &TapeSlice,
    candidates: &CandidateRows<'_>,
) -> (String, Vec<Value>) {
    let mut query = SqlQuery {
        conditions: Vec::new(),
        values: vec![text_value(tape.as_str()), Value::Integer(candidates.rowid_offset)],
    };
    query.add_condition("search_index MATCH ?", [text_value(candidates.expression)]);
    query.add_condition(
        "search_index.rowid BETWEEN ? AND ?",
        [Value::Integer(candidates.first_rowid), Value::Integer(candidates.last_rowid)],
    );
    query.add_kind_condition(slice);
    query.add_date_condition(slice);
    let (conditions, order) = (query.conditions.join(" AND "), sort_direction(slice));
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM search_index CROSS JOIN entries ON tape = ? AND id = search_index.rowid - ? \
         WHERE {conditions} ORDER BY search_index.rowid {order}"
    );
    (sql, query.values)
}

/// Returns true if reading the slice visits at most `max_rows` rows, whatever the tape contains. If an index finds the
/// entries, the limit of the slice is enough; otherwise the slice must lie between two entries.
pub(super) fn is_bounded(slice: &TapeSlice, max_rows: usize) -> bool {
    let is_limited = slice.limit.is_some_and(|limit| limit <= max_rows);
    let is_indexed = match slice.kinds.as_slice() {
        [] | [EntryKind::Anchor | EntryKind::ToolCall] => true,
        _ => slice.anchor.is_some(),
    };
    let is_narrow = || {
        let (after, up_to) = (slice.after.unwrap_or_default().0, slice.up_to.map_or(u64::MAX, |id| id.0));
        usize::try_from(up_to.saturating_sub(after)).is_ok_and(|count| count <= max_rows)
    };
    slice.date_range.is_none() && is_limited && (is_indexed || is_narrow())
}

fn sort_direction(slice: &TapeSlice) -> &'static str {
    match slice.order {
        EntryOrder::OldestFirst => "ASC",
        EntryOrder::NewestFirst => "DESC",
    }
}

fn text_value(text: &str) -> Value {
    Value::Text(text.to_owned())
}

struct SqlQuery {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl SqlQuery {
    fn add_condition(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.conditions.push(condition.to_owned());
        self.values.extend(values);
    }

    fn add_date_condition(&mut self, slice: &TapeSlice) {
        if let Some(range) = slice.date_range {
            let (from, before) = (range.from.as_millis().saturating_sub(1), range.before.as_millis().saturating_add(1));
            self.add_condition("date_ms BETWEEN ? AND ?", [Value::Integer(from), Value::Integer(before)]);
        }
    }

    /// Adds the conditions on kinds and anchor, and returns the index to use. A partial index needs its kind as a
    /// literal.
    fn add_kind_condition(&mut self, slice: &TapeSlice) -> &'static str {
        if let Some(name) = &slice.anchor {
            self.add_condition("kind = 'anchor' AND anchor = ?", [text_value(name)]);
            if !slice.kinds.is_empty() && !slice.kinds.contains(&EntryKind::Anchor) {
                self.add_condition("FALSE", []);
            }
            return " INDEXED BY entries_anchors_by_name";
        }
        match slice.kinds.as_slice() {
            [] => "",
            [EntryKind::Anchor] => {
                self.add_condition("kind = 'anchor'", []);
                " INDEXED BY entries_anchors"
            }
            [EntryKind::ToolCall] => {
                self.add_condition("kind = 'tool_call'", []);
                " INDEXED BY entries_tool_calls"
            }
            kinds => {
                let placeholders = vec!["?"; kinds.len()].join(", ");
                self.add_condition(
                    &format!("kind IN ({placeholders})"),
                    kinds.iter().map(|kind| text_value(kind.as_str())),
                );
                ""
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{EntryId, TapeName};
    use capstan_tape::{EntryKind, TapeSlice};
    use rusqlite::{Connection, params_from_iter};

    use super::{entries_query, is_bounded};
    use crate::sqlite::schema::MIGRATIONS;

    /// Query plan of SQLite for a slice.
    fn query_plan(slice: &TapeSlice) -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&MIGRATIONS.concat()).unwrap();
        let (sql, values) = entries_query(&TapeName::parse("t").unwrap(), slice);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
        steps.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
    }

    #[test]
    fn d12_only_slices_of_a_few_rows_are_read_on_the_thread_of_the_caller() {
        let few = TapeSlice { limit: Some(5), ..TapeSlice::after(EntryId(7)) };
        let kinds = |kinds: &[EntryKind]| TapeSlice { kinds: kinds.to_vec(), ..few.clone() };
        let narrow =
            |last| TapeSlice { up_to: Some(EntryId(last)), ..kinds(&[EntryKind::Message, EntryKind::ToolResult]) };
        for (slice, expected) in [
            (few.clone(), true),
            (TapeSlice::last_anchor(), true),
            (kinds(&[EntryKind::ToolCall]), true),
            (TapeSlice { anchor: Some("a".into()), ..kinds(&[EntryKind::Anchor, EntryKind::Event]) }, true),
            (narrow(39), true),
            // Any number of other entries may come before a few messages.
            (kinds(&[EntryKind::Message]), false),
            (kinds(&[EntryKind::Anchor, EntryKind::ToolCall]), false),
            (narrow(40), false),
            (TapeSlice { limit: Some(33), ..few.clone() }, false),
            (TapeSlice::after(EntryId(7)), false),
        ] {
            assert_eq!(is_bounded(&slice, 32), expected, "{slice:?}");
        }
    }

    #[test]
    fn d12_entries_that_a_turn_reads_are_found_by_index() {
        let after = Some(EntryId(7));
        let last_call = TapeSlice { kinds: vec![EntryKind::ToolCall], ..TapeSlice::last_anchor() };
        let by_name = TapeSlice { anchor: Some("a".into()), ..TapeSlice::last_anchor() };
        let next_of_name = TapeSlice { anchor: Some("a".into()), limit: Some(1), ..TapeSlice::after(EntryId(7)) };
        for (slice, expected) in [
            (TapeSlice { after, ..TapeSlice::last_anchor() }, "USING INDEX entries_anchors (tape=? AND id>?)"),
            (TapeSlice { after, ..last_call }, "USING INDEX entries_tool_calls (tape=? AND id>?)"),
            (TapeSlice { after, ..by_name }, "USING INDEX entries_anchors_by_name (tape=? AND anchor=? AND id>?)"),
            (next_of_name, "USING INDEX entries_anchors_by_name (tape=? AND anchor=? AND id>?)"),
            (TapeSlice::after(EntryId(7)), "USING INDEX sqlite_autoindex_entries_1 (tape=? AND id>?)"),
            (TapeSlice::last(), "USING INDEX sqlite_autoindex_entries_1 (tape=?)"),
        ] {
            let plan = query_plan(&slice);
            assert!(plan.starts_with("SEARCH entries"), "{plan}");
            assert!(plan.ends_with(expected), "neither sorted nor scanned: {plan}");
        }
    }
}
