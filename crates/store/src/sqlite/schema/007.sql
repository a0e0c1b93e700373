-- Entries are stored in the order in which they were written and found by an index. In a tree ordered by tape and id, whose
-- rows are long, inserting a few entries kept moving the entries of neighbouring pages.
CREATE TABLE entries_as_written (
    tape TEXT NOT NULL REFERENCES tapes (name),
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    anchor TEXT, -- the name of an anchor
    payload TEXT NOT NULL, -- JSON
    meta TEXT NOT NULL, -- JSON
    date TEXT NOT NULL, -- as it was written
    date_ms INTEGER, -- the moment it means, if it means one
    extra TEXT NOT NULL, -- JSON
    payload_hash TEXT,
    PRIMARY KEY (tape, id)
) STRICT;

INSERT INTO entries_as_written
SELECT tape, id, kind, anchor, payload, meta, date, date_ms, extra, payload_hash FROM entries ORDER BY tape, id;

DROP TABLE entries;
ALTER TABLE entries_as_written RENAME TO entries;

CREATE INDEX entries_anchors ON entries (tape, id) WHERE kind = 'anchor';
CREATE INDEX entries_anchors_by_name ON entries (tape, anchor, id) WHERE kind = 'anchor';
CREATE INDEX entries_tool_calls ON entries (tape, id) WHERE kind = 'tool_call';
CREATE INDEX entries_payloads ON entries (payload_hash) WHERE payload_hash IS NOT NULL;
