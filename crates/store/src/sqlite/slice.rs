//! A slice as SQL: every filter is pushed down, and what a turn needs is found by index.

use capstan_protocol::TapeName;
use capstan_tape::{Kind, Order, Slice};
use rusqlite::types::Value;

use super::columns::integer;
use super::search::Candidates;

/// The columns of an entry, in the order `read` takes them.
pub(super) const ENTRY_COLUMNS: &str = "id, kind, payload, meta, date, extra, payload_hash";

/// The query for a slice of a tape, and its values. Dates are narrowed to the millisecond: the reader does the rest.
pub(super) fn entries_query(tape: &TapeName, slice: &Slice) -> (String, Vec<Value>) {
    let mut query = Query { conditions: vec!["tape = ?".to_owned()], values: vec![text(tape.as_str())] };
    if let Some(id) = slice.after {
        query.must("id > ?", [Value::Integer(integer(id.0))]);
    }
    if let Some(id) = slice.up_to {
        query.must("id <= ?", [Value::Integer(integer(id.0))]);
    }
    let index = query.must_be_of(slice);
    query.must_be_dated(slice);
    let order = direction(slice);
    let conditions = query.conditions.join(" AND ");
    let mut sql = format!("SELECT {ENTRY_COLUMNS} FROM entries{index} WHERE {conditions} ORDER BY id {order}");
    if let Some(limit) = slice.limit.filter(|_| slice.dated.is_none()) {
        sql.push_str(" LIMIT ?");
        query.values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    (sql, query.values)
}

/// The query for the entries of a slice that may be meant by a search, and its values. Limits are the reader's.
pub(super) fn candidates_query(tape: &TapeName, slice: &Slice, meant: &Candidates<'_>) -> (String, Vec<Value>) {
    let mut query = Query { conditions: Vec::new(), values: vec![text(tape.as_str()), Value::Integer(meant.offset)] };
    query.must("search_index MATCH ?", [text(meant.expression)]);
    query.must("search_index.rowid BETWEEN ? AND ?", [Value::Integer(meant.first), Value::Integer(meant.last)]);
    query.must_be_of(slice);
    query.must_be_dated(slice);
    let (conditions, order) = (query.conditions.join(" AND "), direction(slice));
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM search_index CROSS JOIN entries ON tape = ? AND id = search_index.rowid - ? \
         WHERE {conditions} ORDER BY search_index.rowid {order}"
    );
    (sql, query.values)
}

/// Whether so many rows are looked at for a slice at most, whatever the tape is like: its limit alone says so where an
/// index finds what is wanted, otherwise it must lie between two entries.
pub(super) fn is_short(slice: &Slice, few: usize) -> bool {
    let is_limited = slice.limit.is_some_and(|limit| limit <= few);
    let is_found = match slice.kinds.as_slice() {
        [] | [Kind::Anchor | Kind::ToolCall] => true,
        _ => slice.anchor.is_some(),
    };
    let is_narrow = || {
        let (after, up_to) = (slice.after.unwrap_or_default().0, slice.up_to.map_or(u64::MAX, |id| id.0));
        usize::try_from(up_to.saturating_sub(after)).is_ok_and(|count| count <= few)
    };
    slice.dated.is_none() && is_limited && (is_found || is_narrow())
}

fn direction(slice: &Slice) -> &'static str {
    match slice.order {
        Order::OldestFirst => "ASC",
        Order::NewestFirst => "DESC",
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

struct Query {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Query {
    fn must(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.conditions.push(condition.to_owned());
        self.values.extend(values);
    }

    fn must_be_dated(&mut self, slice: &Slice) {
        if let Some(range) = slice.dated {
            let (from, before) = (range.from.as_millis().saturating_sub(1), range.before.as_millis().saturating_add(1));
            self.must("date_ms BETWEEN ? AND ?", [Value::Integer(from), Value::Integer(before)]);
        }
    }

    /// Adds which kinds and anchors, and says which index finds them. A partial index wants its kind as a literal.
    fn must_be_of(&mut self, slice: &Slice) -> &'static str {
        if let Some(name) = &slice.anchor {
            self.must("kind = 'anchor' AND anchor = ?", [text(name)]);
            if !slice.kinds.is_empty() && !slice.kinds.contains(&Kind::Anchor) {
                self.must("FALSE", []);
            }
            return " INDEXED BY entries_anchors_by_name";
        }
        match slice.kinds.as_slice() {
            [] => "",
            [Kind::Anchor] => {
                self.must("kind = 'anchor'", []);
                " INDEXED BY entries_anchors"
            }
            [Kind::ToolCall] => {
                self.must("kind = 'tool_call'", []);
                " INDEXED BY entries_tool_calls"
            }
            kinds => {
                let places = vec!["?"; kinds.len()].join(", ");
                self.must(&format!("kind IN ({places})"), kinds.iter().map(|kind| text(kind.as_str())));
                ""
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{EntryId, TapeName};
    use capstan_tape::{Kind, Slice};
    use rusqlite::{Connection, params_from_iter};

    use super::{entries_query, is_short};
    use crate::sqlite::schema::MIGRATIONS;

    /// How SQLite would find a slice, in its own words.
    fn plan(slice: &Slice) -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&MIGRATIONS.concat()).unwrap();
        let (sql, values) = entries_query(&TapeName::parse("t").unwrap(), slice);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
        steps.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
    }

    #[test]
    fn d12_only_what_is_found_among_a_few_rows_is_read_on_the_thread_of_whoever_asks() {
        let few = Slice { limit: Some(5), ..Slice::after(EntryId(7)) };
        let kinds = |kinds: &[Kind]| Slice { kinds: kinds.to_vec(), ..few.clone() };
        let narrow = |last| Slice { up_to: Some(EntryId(last)), ..kinds(&[Kind::Message, Kind::ToolResult]) };
        for (slice, expected) in [
            (few.clone(), true),
            (Slice::last_anchor(), true),
            (kinds(&[Kind::ToolCall]), true),
            (Slice { anchor: Some("a".into()), ..kinds(&[Kind::Anchor, Kind::Event]) }, true),
            (narrow(39), true),
            // A few messages may stand behind any number of other entries.
            (kinds(&[Kind::Message]), false),
            (kinds(&[Kind::Anchor, Kind::ToolCall]), false),
            (narrow(40), false),
            (Slice { limit: Some(33), ..few.clone() }, false),
            (Slice::after(EntryId(7)), false),
        ] {
            assert_eq!(is_short(&slice, 32), expected, "{slice:?}");
        }
    }

    #[test]
    fn d12_what_a_turn_reads_is_found_by_index() {
        let after = Some(EntryId(7));
        let last_call = Slice { kinds: vec![Kind::ToolCall], ..Slice::last_anchor() };
        let by_name = Slice { anchor: Some("a".into()), ..Slice::last_anchor() };
        let next_of_name = Slice { anchor: Some("a".into()), limit: Some(1), ..Slice::after(EntryId(7)) };
        for (slice, expected) in [
            (Slice { after, ..Slice::last_anchor() }, "USING INDEX entries_anchors (tape=? AND id>?)"),
            (Slice { after, ..last_call }, "USING INDEX entries_tool_calls (tape=? AND id>?)"),
            (Slice { after, ..by_name }, "USING INDEX entries_anchors_by_name (tape=? AND anchor=? AND id>?)"),
            (next_of_name, "USING INDEX entries_anchors_by_name (tape=? AND anchor=? AND id>?)"),
            (Slice::after(EntryId(7)), "USING INDEX sqlite_autoindex_entries_1 (tape=? AND id>?)"),
            (Slice::last(), "USING INDEX sqlite_autoindex_entries_1 (tape=?)"),
        ] {
            let plan = plan(&slice);
            assert!(plan.starts_with("SEARCH entries"), "{plan}");
            assert!(plan.ends_with(expected), "no sorting, no scanning: {plan}");
        }
    }
}
