-- Files that runs have made, in pieces: left here while the attempt runs, and kept for as long as its result is where the
-- report that is recorded names them. In the transaction in which an attempt ends every piece of it goes that no report has
-- named.
CREATE TABLE artifact_pieces (
    attempt_id BLOB    NOT NULL REFERENCES attempts (attempt_id),
    -- The file's number among those of the attempt, and the piece's number in it; both from 0.
    file       INTEGER NOT NULL CHECK (file >= 0),
    piece      INTEGER NOT NULL CHECK (piece >= 0),
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    bytes      INTEGER NOT NULL CHECK (bytes = length(content) AND bytes BETWEEN 1 AND 1048576),
    content    BLOB    NOT NULL,
    PRIMARY KEY (attempt_id, file, piece)
) STRICT;

CREATE TRIGGER artifact_pieces_never_change BEFORE UPDATE ON artifact_pieces
BEGIN
    SELECT RAISE(ABORT, 'a piece of a file never changes');
END;
CREATE TRIGGER artifact_pieces_are_left_once BEFORE INSERT ON artifact_pieces
WHEN EXISTS (SELECT 1 FROM artifact_pieces
              WHERE attempt_id = NEW.attempt_id AND file = NEW.file AND piece = NEW.piece)
BEGIN
    SELECT RAISE(ABORT, 'a piece of a file never changes');
END;
