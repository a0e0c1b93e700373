-- What belongs to no tape: bindings, what runners want remembered, names of contents.
CREATE TABLE kept (
    space TEXT NOT NULL, -- whose it is
    key TEXT NOT NULL,
    value TEXT NOT NULL, -- JSON
    at TEXT NOT NULL,
    by_run TEXT,
    PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;

-- How often each space has changed, and how much is in it.
CREATE TABLE spaces (
    space TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
