-- Whose job is next: by the shares of tenants.

-- Whether a queued job's time has come: what the scheduler reads has no others, however many wait for theirs.
ALTER TABLE jobs ADD COLUMN ready INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1));
DROP INDEX jobs_ready;
DROP INDEX jobs_waiting;
CREATE INDEX jobs_ready ON jobs (pool, tenant_id, image_digest, priority DESC, job_id)
    WHERE state = 'queued' AND ready = 1;
CREATE INDEX jobs_waiting ON jobs (pool, ready_at) WHERE state = 'queued' AND ready = 0;
-- How much a tenant has queued.
CREATE INDEX jobs_queued ON jobs (tenant_id, pool) WHERE state = 'queued';

-- What tenants have had of each pool, and the pools themselves: times are in seconds of slots.
CREATE TABLE pool_shares (
    pool       TEXT    NOT NULL PRIMARY KEY,
    level      REAL    NOT NULL,
    mean_run   REAL    NOT NULL,
    -- Runs that ended until then are on the accounts.
    counted_to INTEGER NOT NULL,
    -- Where the next look at who wants slots begins, after one that did not come to the end: a tenant, or nothing.
    look_from  BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tenant_shares (
    pool      TEXT NOT NULL,
    tenant_id BLOB NOT NULL,
    account   REAL NOT NULL,
    PRIMARY KEY (pool, tenant_id)
) STRICT, WITHOUT ROWID;
