-- The newest self-test that a session has told of, as JSON; NULL where it has told of none.
ALTER TABLE sessions ADD COLUMN self_test TEXT;
-- Whether it may run jobs by that. Its slots are no room for jobs where it may not.
ALTER TABLE sessions ADD COLUMN fit INTEGER NOT NULL DEFAULT 1 CHECK (fit IN (0, 1));
