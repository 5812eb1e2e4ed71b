-- Executors that may take part, and what their sessions say of their hosts; and lists of jobs.
CREATE TABLE executors (
    executor_id uuid        NOT NULL PRIMARY KEY,
    name        text        NOT NULL UNIQUE,
    pool        text        NOT NULL,
    enrolled_at timestamptz NOT NULL,
    -- Whether it is to take nothing new.
    cordoned    boolean     NOT NULL DEFAULT false
);

CREATE TRIGGER executors_stay_who_they_are BEFORE UPDATE ON executors FOR EACH ROW
WHEN (NEW.executor_id <> OLD.executor_id OR NEW.name <> OLD.name OR NEW.pool <> OLD.pool
      OR NEW.enrolled_at <> OLD.enrolled_at)
EXECUTE FUNCTION mayfly_refuse('an executor stays who it is');
CREATE TRIGGER executors_never_go BEFORE DELETE ON executors FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('an executor is kept');
GRANT SELECT, INSERT ON executors TO mayfly_engine;
GRANT UPDATE (cordoned) ON executors TO mayfly_engine;

-- The newest message version that a session reads.
ALTER TABLE sessions ADD COLUMN reads bigint NOT NULL DEFAULT 1;
-- Digests of the images that its host has, a list; NULL where it makes sure of each image by itself.
ALTER TABLE sessions ADD COLUMN images text;

CREATE INDEX sessions_of_executor ON sessions (executor_id, opened_at, session_id);

-- What jobs are found by that an index of their own table would cost much: how they ended, since an index of it would be
-- written by every move of a job; and their labels, each by the SHA-256 of its name and value.
CREATE TABLE ended_jobs (
    tenant_id    uuid        NOT NULL,
    end_state    text        NOT NULL,
    submitted_at timestamptz NOT NULL,
    job_id       uuid        NOT NULL,
    PRIMARY KEY (tenant_id, end_state, submitted_at, job_id)
);
CREATE TABLE job_labels (
    tenant_id    uuid        NOT NULL,
    label        bytea       NOT NULL CHECK (octet_length(label) = 32),
    submitted_at timestamptz NOT NULL,
    job_id       uuid        NOT NULL,
    PRIMARY KEY (tenant_id, label, submitted_at, job_id)
);

-- Messages that were set aside. Those about attempts hold nothing: the attempts are on record.
CREATE TABLE dead_letters (
    -- The SHA-256 of the message.
    letter_id  bytea       NOT NULL PRIMARY KEY CHECK (octet_length(letter_id) = 32),
    at         timestamptz NOT NULL,
    origin     text        NOT NULL CHECK (origin IN ('jobs', 'events')),
    pool       text        NOT NULL,
    cause      text        NOT NULL CHECK (cause IN ('rejected', 'delivery_limit', 'set_aside')),
    -- Text of whoever set it aside, which may quote the message.
    reason     bytea,
    bytes      bigint      NOT NULL,
    tenant_id  uuid,
    job_id     uuid,
    attempt_id uuid,
    -- The message itself, and who had published it, where it is about no attempt.
    content    bytea,
    sender     text,
    CHECK ((attempt_id IS NULL) = (job_id IS NULL)),
    CHECK ((attempt_id IS NULL) = (tenant_id IS NULL)),
    CHECK ((attempt_id IS NULL) = (content IS NOT NULL)),
    CHECK ((attempt_id IS NULL) = (sender IS NOT NULL))
);
CREATE INDEX dead_letters_oldest ON dead_letters (at, letter_id);

DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['ended_jobs', 'job_labels', 'dead_letters'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format(
            'CREATE POLICY of_the_tenant ON %I TO mayfly_api
              USING (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)
              WITH CHECK (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)', guarded);
    END LOOP;
END $$;
CREATE POLICY across_tenants ON ended_jobs TO mayfly_engine USING (true) WITH CHECK (true);
CREATE POLICY across_tenants ON dead_letters TO mayfly_engine USING (true) WITH CHECK (true);
GRANT SELECT ON ended_jobs TO mayfly_api;
GRANT INSERT ON ended_jobs TO mayfly_engine;
GRANT SELECT, INSERT ON job_labels TO mayfly_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters TO mayfly_engine;
