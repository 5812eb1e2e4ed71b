-- Rows as they stand after the migration of the same number, for the ones after it: an executor that was never seen, and
-- one that is cordoned and has a session.
INSERT INTO executors (executor_id, name, pool, enrolled_at, cordoned)
VALUES (X'01A2281D3FE971A0B4EB1D504D33D501', 'never-seen', 'gpu', 1795910400000000, 0);
INSERT INTO executors (executor_id, name, pool, enrolled_at, cordoned)
SELECT executor_id, 'first', pool, opened_at, 1 FROM sessions ORDER BY session_id LIMIT 1;
UPDATE sessions SET images = '["sha256:3333333333333333333333333333333333333333333333333333333333333333"]', reads = 2
 WHERE executor_id = (SELECT executor_id FROM executors WHERE name = 'first');
INSERT INTO dead_letters (letter_id, at, origin, pool, cause, reason, bytes, content, sender)
VALUES (X'2222222222222222222222222222222222222222222222222222222222222222', 1795910400000000, 'events', 'gpu', 'set_aside',
        X'6e6f206d657373616765', 2, X'7b7d', '');
