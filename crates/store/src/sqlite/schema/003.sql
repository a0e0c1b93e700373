-- Large payloads, each kept once however many entries have it. The entry's own payload is null then.
CREATE TABLE payloads (
    hash TEXT PRIMARY KEY,
    json TEXT NOT NULL
) STRICT;

ALTER TABLE entries ADD COLUMN payload_hash TEXT;

CREATE INDEX entries_payloads ON entries (payload_hash) WHERE payload_hash IS NOT NULL;

-- What a search asks. All of it is derived from the entries, is brought up to date by searches, and may be emptied.
CREATE VIRTUAL TABLE search_index USING fts5 (terms, content = '', columnsize = 0, detail = none, tokenize = 'ascii');

-- The words of the index: a search for a part of a word, or with a typo, begins here.
CREATE TABLE search_words (word TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- How far each tape is in the index.
CREATE TABLE search_tapes (
    number INTEGER PRIMARY KEY,
    tape TEXT NOT NULL UNIQUE,
    up_to INTEGER NOT NULL
) STRICT;

-- By which rules texts were divided into terms. An index of other rules is emptied and made anew.
CREATE TABLE search_rules (rules TEXT NOT NULL) STRICT;
