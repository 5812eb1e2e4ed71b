-- Rows as they stand after the migration of the same number, for the ones after it.
UPDATE sessions SET fit = 0, self_test = '{"at":"2026-11-29T00:00:00.000Z","result":"failed","runtimes":["runc"],"programs":20,"failures":[{"runtime":"runc","probe":"memory","why":"it got more than its limit"}],"accepted":["engine.lsm"]}'
 WHERE ended IS NULL;
