-- Rows as they stand after the migration of the same number, for the ones after it: a key of a job that is over, and one
-- whose content went with its end.
INSERT INTO idempotency_keys (tenant_id, key, body, job_id, expires_at)
SELECT tenant_id, 'sha256:1111111111111111111111111111111111111111111111111111111111111111',
       'sha256:2222222222222222222222222222222222222222222222222222222222222222', job_id, submitted_at + 86400000000
  FROM jobs WHERE job_id = X'01A2281D3FDA71D183166B581324F522';
INSERT INTO jobs (job_id, tenant_id, pool, state, priority, attempts, current_attempt, retry, asked, labels, image, image_digest, policy_version, submitted_at, ready_at, expires_at, ended_at, end_state, outcome, retain_source)
SELECT X'01A2281D3FEA71D183166B581324F510', tenant_id, pool, 'ended', priority, 0, NULL, retry, asked, labels, image, image_digest, policy_version, submitted_at, ready_at, expires_at, submitted_at, 'canceled',
       '{"state":"canceled","cause":"canceled_by_request","evidence":{"started":false}}', 0
  FROM jobs WHERE job_id = X'01A2281D3FDA71D183166B581324F522';
