-- Who may do what. Row-level security is forced, so that it binds the owner too. A transaction that names no tenant sees
-- no row: after a transaction that did the setting reads '' and not NULL.
DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['batches', 'jobs', 'job_contents', 'batch_items', 'batch_counts', 'batch_ends', 'attempts',
                                   'results', 'ready_jobs', 'delayed_jobs', 'expiring_jobs', 'unstarted_attempts',
                                   'pool_news', 'lanes', 'tenant_shares', 'audit_events'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format(
            'CREATE POLICY of_the_tenant ON %I TO mayfly_api
              USING (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)
              WITH CHECK (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)', guarded);
        EXECUTE format('CREATE POLICY across_tenants ON %I TO mayfly_engine USING (true) WITH CHECK (true)', guarded);
    END LOOP;
END $$;

-- A job begins as one that waits, whoever submits it.
CREATE POLICY begins_as_queued ON jobs AS RESTRICTIVE FOR INSERT TO mayfly_api
    WITH CHECK (state = 'queued' AND attempts = 0 AND current_attempt IS NULL);

REVOKE ALL ON FUNCTION mayfly_make_partitions(integer), mayfly_guard_partition(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION mayfly_make_partitions(integer) TO mayfly_engine;

GRANT SELECT ON schema_reader TO mayfly_api, mayfly_engine;

GRANT SELECT, INSERT ON batches, jobs, job_contents, batch_items, audit_events TO mayfly_api;
GRANT UPDATE (accepted, items) ON batches TO mayfly_api;
GRANT SELECT ON batch_counts, batch_ends, attempts, results TO mayfly_api;
GRANT INSERT ON ready_jobs, delayed_jobs, expiring_jobs TO mayfly_api;
-- Which transaction writes it is not for the writer to say.
GRANT INSERT (pool, tenant_id, rank, image_digest, first_job, queued, in_flight, started, started_ms, ended, ended_us)
    ON pool_news TO mayfly_api, mayfly_engine;
GRANT SELECT, INSERT ON images TO mayfly_api;
GRANT UPDATE (reference, digest, config_digest, platform, pinned_at) ON images TO mayfly_api;

GRANT SELECT ON jobs, job_contents, attempts TO mayfly_engine;
GRANT UPDATE (pool, state, attempts, current_attempt, ready_at, ended_at, end_state, outcome) ON jobs TO mayfly_engine;
GRANT INSERT ON attempts, results, batch_ends, audit_events TO mayfly_engine;
GRANT UPDATE (pool, state, publication, published_at, confirmed, dead_letters, session_id, executor_id, started_at,
              ended_at, cause) ON attempts TO mayfly_engine;
GRANT SELECT, INSERT, UPDATE ON sessions, queues, batch_counts, pool_dispatches, pool_departures, pool_shares, tenant_shares
    TO mayfly_engine;
GRANT SELECT, DELETE ON pool_news TO mayfly_engine;
-- How much a tenant has queued is counted when it submits more.
GRANT SELECT ON pool_news, tenant_shares TO mayfly_api;
GRANT SELECT (pool, read_to) ON pool_shares TO mayfly_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON lanes TO mayfly_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON ready_jobs, delayed_jobs, expiring_jobs, unstarted_attempts, pool_ends TO mayfly_engine;
