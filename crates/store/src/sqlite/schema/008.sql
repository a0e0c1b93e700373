-- Hash chain of the entries of each tape. The hashes of existing entries are computed by the migration.
ALTER TABLE entries ADD COLUMN hash BLOB; -- over the entry and the hash of the entry before it
ALTER TABLE tapes ADD COLUMN head_hash BLOB; -- the hash of the newest entry

-- Hashes of entries whose rows were removed, because the external tape store has them.
CREATE TABLE replicated_hashes (
    tape TEXT NOT NULL,
    id INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (tape, id)
) STRICT, WITHOUT ROWID;
