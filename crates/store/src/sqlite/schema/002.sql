-- Events in flight have rows of their own, so that they need not be inferred from missing outcomes.
CREATE TABLE in_flight (
    source TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    session TEXT NOT NULL,
    tape TEXT NOT NULL,
    entry INTEGER NOT NULL,
    at TEXT NOT NULL,
    owner TEXT, -- the process that sees to it; unknown for what was accepted before this table
    adoptions INTEGER NOT NULL,
    run_id TEXT, -- the run that took it in
    message INTEGER, -- where its message stands then
    PRIMARY KEY (source, bot_id, event_id),
    FOREIGN KEY (source, bot_id, event_id) REFERENCES inbox (source, bot_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX in_flight_tapes ON in_flight (tape, entry);

INSERT INTO in_flight
SELECT source, bot_id, event_id, session, tape, entry, at, NULL, 0, NULL, NULL
FROM inbox LEFT JOIN outcomes USING (source, bot_id, event_id)
WHERE outcome IS NULL;

CREATE INDEX runs_running ON runs (number) WHERE status = 'running';

CREATE INDEX outbox_waiting ON outbox (id) WHERE json_extract(status, '$.status') = 'waiting';

ALTER TABLE outbox ADD COLUMN owner TEXT; -- the process that sends it; unknown for what was staged before
