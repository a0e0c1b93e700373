-- Fields of a run that changed after it was opened. Its record is written once.
ALTER TABLE runs ADD COLUMN changed TEXT; -- JSON
