-- Rows as they stand after the migration of the same number, for the ones after it: a batch that is complete, with a job
-- that waits, and one that was interrupted while its jobs were being accepted.
INSERT INTO batches (batch_id, tenant_id, input, created_at, items)
VALUES (X'01A2281D3FE971A0B4EB1D504D33D201', X'00000000000000000000000000000000', 'programs/', 1795910400000000, NULL),
       (X'01A2281D3FE971A0B4EB1D504D33D202', X'00000000000000000000000000000000', 'tasks.jsonl', 1795910400000000, NULL);
INSERT INTO jobs (job_id, tenant_id, pool, state, priority, attempts, current_attempt, retry, asked, labels, image, image_digest, policy_version, submitted_at, ready_at, expires_at, ended_at, end_state, outcome, batch_id, batch_position)
SELECT X'01A2281D3FEA71D183166B581324F501', tenant_id, pool, state, priority, attempts, current_attempt, retry, asked, labels, image, image_digest, policy_version, submitted_at, ready_at, expires_at, ended_at, end_state, outcome, X'01A2281D3FE971A0B4EB1D504D33D201', 1
  FROM jobs WHERE job_id = X'01A2281D3FDA71D183166B581324F522';
INSERT INTO job_contents (job_id, salt, resolved)
SELECT X'01A2281D3FEA71D183166B581324F501', salt, resolved
  FROM job_contents WHERE job_id = X'01A2281D3FDA71D183166B581324F522';
INSERT INTO batch_items (batch_id, item, job_id)
VALUES (X'01A2281D3FE971A0B4EB1D504D33D201', 'first.py', X'01A2281D3FEA71D183166B581324F501');
UPDATE batches SET items = 1 WHERE batch_id = X'01A2281D3FE971A0B4EB1D504D33D201';
