-- Last imported entry of a tape. Ids after it have no gaps.
ALTER TABLE tapes ADD COLUMN brought_along INTEGER NOT NULL DEFAULT 0;

-- For older tapes it is only known that entries after the first accepted event were written by this program.
UPDATE tapes SET brought_along = head WHERE fork_parent IS NULL;
UPDATE tapes SET brought_along = first.entry - 1
FROM (SELECT tape, min(entry) AS entry FROM inbox GROUP BY tape) AS first
WHERE first.tape = tapes.name AND fork_parent IS NULL;
