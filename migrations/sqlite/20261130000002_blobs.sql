-- What runs have written that is too long for the message of their reports, until the report that names it is recorded. Only
-- an attempt that has started and is not over has any, and it goes in the transaction in which that ends.
CREATE TABLE output_blobs (
    attempt_id BLOB NOT NULL PRIMARY KEY REFERENCES attempts (attempt_id),
    digest     BLOB NOT NULL CHECK (length(digest) = 32),
    content    BLOB NOT NULL
) STRICT;

CREATE TRIGGER output_blobs_never_change BEFORE UPDATE ON output_blobs
BEGIN
    SELECT RAISE(ABORT, 'what was left of an output never changes');
END;
CREATE TRIGGER output_blobs_are_left_once BEFORE INSERT ON output_blobs
WHEN EXISTS (SELECT 1 FROM output_blobs WHERE attempt_id = NEW.attempt_id)
BEGIN
    SELECT RAISE(ABORT, 'what was left of an output never changes');
END;
