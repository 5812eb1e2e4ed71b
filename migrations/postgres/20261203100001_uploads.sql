-- Files that tenants have uploaded, in pieces. One is found by its digest once it is whole, which needs `kept_at`; jobs have
-- it through job_fetches, and while one of them is not over it does not go.
CREATE TABLE uploads (
    tenant_id uuid        NOT NULL,
    upload_id uuid        NOT NULL,
    digest    bytea       NOT NULL CHECK (octet_length(digest) = 32),
    bytes     bigint      NOT NULL CHECK (bytes >= 0),
    begun_at  timestamptz NOT NULL,
    kept_at   timestamptz,
    used_at   timestamptz NOT NULL,
    PRIMARY KEY (upload_id, tenant_id)
);

CREATE UNIQUE INDEX uploads_by_digest ON uploads (tenant_id, digest) WHERE kept_at IS NOT NULL;
CREATE INDEX uploads_of_tenant ON uploads (tenant_id, upload_id);
CREATE INDEX uploads_by_use ON uploads (used_at);

CREATE TRIGGER uploads_stay_what_they_are BEFORE UPDATE ON uploads FOR EACH ROW
WHEN (OLD.tenant_id <> NEW.tenant_id OR OLD.upload_id <> NEW.upload_id OR OLD.digest <> NEW.digest
      OR OLD.bytes <> NEW.bytes OR OLD.begun_at <> NEW.begun_at
      OR (OLD.kept_at IS NOT NULL AND NEW.kept_at IS DISTINCT FROM OLD.kept_at))
EXECUTE FUNCTION mayfly_refuse('an upload stays what it is');

CREATE TABLE upload_pieces (
    tenant_id uuid    NOT NULL,
    upload_id uuid    NOT NULL,
    -- From 0; all but the last are of one length.
    piece     integer NOT NULL CHECK (piece >= 0),
    bytes     integer NOT NULL CHECK (bytes = octet_length(content) AND bytes BETWEEN 1 AND 1048576),
    content   bytea   NOT NULL,
    PRIMARY KEY (upload_id, tenant_id, piece),
    FOREIGN KEY (upload_id, tenant_id) REFERENCES uploads (upload_id, tenant_id)
);

CREATE TRIGGER upload_pieces_never_change BEFORE UPDATE ON upload_pieces FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a piece of an upload never changes');

-- As for results: LZ4 is several times faster than PostgreSQL's own, and some builds are without it.
DO $$
BEGIN
    ALTER TABLE upload_pieces ALTER COLUMN content SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

-- The files that executors fetch for jobs, by their numbers among those of the job. Rows of a job that is over go with the
-- upload.
CREATE TABLE job_fetches (
    tenant_id uuid    NOT NULL,
    job_id    uuid    NOT NULL,
    file      integer NOT NULL CHECK (file >= 0),
    upload_id uuid    NOT NULL,
    PRIMARY KEY (tenant_id, job_id, file),
    FOREIGN KEY (tenant_id, job_id) REFERENCES jobs (tenant_id, job_id),
    FOREIGN KEY (upload_id, tenant_id) REFERENCES uploads (upload_id, tenant_id)
);

CREATE INDEX job_fetches_of_upload ON job_fetches (upload_id);

CREATE TRIGGER job_fetches_never_change BEFORE UPDATE ON job_fetches FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('what a job fetches never changes');

DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['uploads', 'upload_pieces', 'job_fetches'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format(
            'CREATE POLICY of_the_tenant ON %I TO mayfly_api
              USING (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)
              WITH CHECK (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)', guarded);
        EXECUTE format('CREATE POLICY across_tenants ON %I TO mayfly_engine USING (true) WITH CHECK (true)', guarded);
    END LOOP;
END $$;

GRANT SELECT, INSERT, DELETE ON uploads, upload_pieces, job_fetches TO mayfly_api;
GRANT UPDATE (kept_at, used_at) ON uploads TO mayfly_api;
-- It fetches for executors, and sweeps. What it may change it must be able to lock.
GRANT SELECT, DELETE ON uploads, upload_pieces, job_fetches TO mayfly_engine;
GRANT UPDATE (used_at) ON uploads TO mayfly_engine;
