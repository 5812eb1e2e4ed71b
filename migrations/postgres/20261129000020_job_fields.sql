-- Whether the content is kept after the end.
ALTER TABLE jobs ADD COLUMN retain_source boolean NOT NULL DEFAULT true;

CREATE TRIGGER jobs_keep_their_word BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.retain_source <> OLD.retain_source)
EXECUTE FUNCTION mayfly_refuse('a job stays what it was accepted as');

-- What a job is kept for goes with it: there is none behind the end of a job that is not to be kept, whoever ends it.
CREATE FUNCTION mayfly_erase_content() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM public.job_contents WHERE tenant_id = NEW.tenant_id AND job_id = NEW.job_id;
    RETURN NULL;
END $$;
CREATE TRIGGER job_contents_go_where_asked AFTER UPDATE ON jobs FOR EACH ROW
WHEN (NEW.state = 'ended' AND NOT NEW.retain_source)
EXECUTE FUNCTION mayfly_erase_content();
GRANT DELETE ON job_contents TO mayfly_engine;

-- What a submission is known by: digest of the tenant's key, and a commitment to the body under that key.
CREATE TABLE idempotency_keys (
    tenant_id  uuid        NOT NULL,
    key        text        NOT NULL,
    body       text        NOT NULL,
    job_id     uuid        NOT NULL,
    -- From then on it is as good as not there.
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

CREATE INDEX idempotency_keys_of_old ON idempotency_keys (tenant_id, expires_at);

ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY of_the_tenant ON idempotency_keys TO mayfly_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys TO mayfly_api;
