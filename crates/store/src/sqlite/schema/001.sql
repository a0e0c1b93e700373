CREATE TABLE tapes (
    name TEXT PRIMARY KEY,
    session TEXT,
    workspace TEXT,
    head INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    begins_after INTEGER NOT NULL,
    past TEXT NOT NULL, -- JSON: the generations before this one
    handed_over INTEGER NOT NULL,
    fork_parent TEXT REFERENCES tapes (name),
    fork_position INTEGER,
    fork_state TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE entries (
    tape TEXT NOT NULL REFERENCES tapes (name),
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    anchor TEXT, -- the name of an anchor
    payload TEXT NOT NULL, -- JSON
    meta TEXT NOT NULL, -- JSON
    date TEXT NOT NULL, -- as it was written
    date_ms INTEGER, -- the moment it means, if it means one
    extra TEXT NOT NULL, -- JSON
    PRIMARY KEY (tape, id)
) STRICT, WITHOUT ROWID;

-- A turn reads from the newest anchor. These indexes find it and the newest step, whatever the length of the tape.
CREATE INDEX entries_anchors ON entries (tape, id) WHERE kind = 'anchor';
CREATE INDEX entries_anchors_by_name ON entries (tape, anchor, id) WHERE kind = 'anchor';
CREATE INDEX entries_tool_calls ON entries (tape, id) WHERE kind = 'tool_call';

CREATE TABLE inbox (
    source TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    session TEXT NOT NULL,
    tape TEXT NOT NULL,
    entry INTEGER NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (source, bot_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE outcomes (
    source TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    outcome TEXT NOT NULL, -- JSON
    run_id TEXT,
    PRIMARY KEY (source, bot_id, event_id),
    FOREIGN KEY (source, bot_id, event_id) REFERENCES inbox (source, bot_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they began
    run_id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    status TEXT NOT NULL,
    record TEXT NOT NULL -- JSON
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    at TEXT NOT NULL,
    message TEXT NOT NULL, -- JSON
    status TEXT NOT NULL -- JSON
) STRICT;

CREATE INDEX outbox_events ON outbox (source, bot_id, event_id);

CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE state (
    tape TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, -- JSON
    PRIMARY KEY (tape, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces (
    path TEXT PRIMARY KEY,
    identity TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    tape TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT, -- nobody when it was released
    until TEXT NOT NULL
) STRICT, WITHOUT ROWID;
