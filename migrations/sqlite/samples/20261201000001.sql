-- Rows as they stand after the migration of the same number, for the ones after it: a piece of a file of an attempt that runs.
INSERT INTO artifact_pieces (attempt_id, file, piece, digest, bytes, content)
SELECT attempt_id, 0, 0, X'2222222222222222222222222222222222222222222222222222222222222222', 2, X'00ff'
  FROM attempts WHERE state = 'started' ORDER BY attempt_id LIMIT 1;
