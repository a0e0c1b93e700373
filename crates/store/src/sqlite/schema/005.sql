-- Key-value records that belong to no tape: bindings, state of runners, names of artifacts.
CREATE TABLE kept (
    space TEXT NOT NULL, -- whose it is
    key TEXT NOT NULL,
    value TEXT NOT NULL, -- JSON
    at TEXT NOT NULL,
    by_run TEXT,
    PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;

-- Number of changes and size of each namespace.
CREATE TABLE spaces (
    space TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
