-- What has changed of a run since it was opened: its record is written once.
ALTER TABLE runs ADD COLUMN changed TEXT; -- JSON
