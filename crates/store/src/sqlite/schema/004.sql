-- The last entry of a tape that came with an id of its own: after it no id may be missing.
ALTER TABLE tapes ADD COLUMN brought_along INTEGER NOT NULL DEFAULT 0;

-- Of older tapes it is only known that what follows the first event accepted here was written here.
UPDATE tapes SET brought_along = head WHERE fork_parent IS NULL;
UPDATE tapes SET brought_along = first.entry - 1
FROM (SELECT tape, min(entry) AS entry FROM inbox GROUP BY tape) AS first
WHERE first.tape = tapes.name AND fork_parent IS NULL;
