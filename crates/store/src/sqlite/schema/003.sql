-- Large payloads, each stored once for all its entries. The payload column of the entry is null then.
CREATE TABLE payloads (
    hash TEXT PRIMARY KEY,
    json TEXT NOT NULL
) STRICT;

ALTER TABLE entries ADD COLUMN payload_hash TEXT;

CREATE INDEX entries_payloads ON entries (payload_hash) WHERE payload_hash IS NOT NULL;

-- Search index. All of it is derived from the entries, is updated by searches, and may be cleared.
CREATE VIRTUAL TABLE search_index USING fts5 (terms, content = '', columnsize = 0, detail = none, tokenize = 'ascii');

-- Words of the index, to look up a part of a word or a typo.
CREATE TABLE search_words (word TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- Last indexed entry of each tape.
CREATE TABLE search_tapes (
    number INTEGER PRIMARY KEY,
    tape TEXT NOT NULL UNIQUE,
    up_to INTEGER NOT NULL
) STRICT;

-- Version of the rules that split texts into terms. An index with another version is cleared and rebuilt.
CREATE TABLE search_rules (rules TEXT NOT NULL) STRICT;
