-- What a process leaves behind that dies: its jobs are found by its pool.
CREATE INDEX jobs_of_no_batch_left ON jobs (pool, job_id) WHERE batch_id IS NULL AND state <> 'ended';
CREATE INDEX jobs_left_in_batch ON jobs (tenant_id, batch_id, pool, job_id)
    WHERE batch_id IS NOT NULL AND state <> 'ended';
