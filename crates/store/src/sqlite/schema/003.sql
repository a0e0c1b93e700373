-- Large payloads, each kept once however many entries have it. The entry's own payload is empty then.
CREATE TABLE payloads (
    hash TEXT PRIMARY KEY,
    json TEXT NOT NULL
) STRICT;

ALTER TABLE entries ADD COLUMN payload_hash TEXT;

CREATE INDEX entries_payloads ON entries (payload_hash) WHERE payload_hash IS NOT NULL;
