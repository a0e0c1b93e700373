-- The last entry of a tape that came with an id of its own: after it no id may be missing.
ALTER TABLE tapes ADD COLUMN brought_along INTEGER NOT NULL DEFAULT 0;

-- Of older tapes it is only known that what follows the first event accepted here was written here.
UPDATE tapes
SET brought_along = coalesce((SELECT min(entry) - 1 FROM inbox WHERE inbox.tape = tapes.name), head)
WHERE fork_parent IS NULL;
