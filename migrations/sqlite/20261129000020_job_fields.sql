-- A program that does not know of content that goes with its job's end would keep it, so that older readers are refused
-- from here on.
UPDATE schema_reader SET min_reader = 3;

-- Whether the content is kept after the end.
ALTER TABLE jobs ADD COLUMN retain_source INTEGER NOT NULL DEFAULT 1 CHECK (retain_source IN (0, 1));

-- What a job is kept for goes with it: there is none behind the end of a job that is not to be kept, whoever ends it.
CREATE TRIGGER job_contents_go_where_asked AFTER UPDATE OF state ON jobs
WHEN NEW.state = 'ended' AND NEW.retain_source = 0
BEGIN
    DELETE FROM job_contents WHERE job_id = NEW.job_id;
END;
CREATE TRIGGER jobs_keep_their_word BEFORE UPDATE OF retain_source ON jobs
WHEN NEW.retain_source IS NOT OLD.retain_source
BEGIN
    SELECT RAISE(ABORT, 'a job stays what it was accepted as');
END;

-- What a submission is known by: digest of the tenant's key, and a commitment to the body under that key.
CREATE TABLE idempotency_keys (
    tenant_id  BLOB    NOT NULL,
    key        TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    -- No reference: a job is never removed, and SQLite would look for its keys whenever one is accepted.
    job_id     BLOB    NOT NULL,
    -- From then on it is as good as not there.
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_of_old ON idempotency_keys (expires_at);
