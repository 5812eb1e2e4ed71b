-- Executors that may take part, and what their sessions say of their hosts; and lists of jobs.

CREATE TABLE executors (
    executor_id BLOB    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    pool        TEXT    NOT NULL,
    enrolled_at INTEGER NOT NULL,
    -- Whether it is to take nothing new.
    cordoned    INTEGER NOT NULL DEFAULT 0 CHECK (cordoned IN (0, 1))
) STRICT;

CREATE TRIGGER executors_stay_who_they_are BEFORE UPDATE ON executors
WHEN NEW.executor_id IS NOT OLD.executor_id OR NEW.name IS NOT OLD.name OR NEW.pool IS NOT OLD.pool
     OR NEW.enrolled_at IS NOT OLD.enrolled_at
BEGIN
    SELECT RAISE(ABORT, 'an executor stays who it is');
END;
CREATE TRIGGER executors_never_go BEFORE DELETE ON executors
BEGIN
    SELECT RAISE(ABORT, 'an executor is kept');
END;
CREATE TRIGGER executors_enroll_once BEFORE INSERT ON executors
WHEN EXISTS (SELECT 1 FROM executors WHERE executor_id = NEW.executor_id OR name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'there is such an executor, and it enrolls once');
END;

-- The newest message version that a session reads.
ALTER TABLE sessions ADD COLUMN reads INTEGER NOT NULL DEFAULT 1;
-- Digests of the images that its host has, a list; NULL where it makes sure of each image by itself.
ALTER TABLE sessions ADD COLUMN images TEXT;

CREATE INDEX sessions_of_executor ON sessions (executor_id, opened_at DESC, session_id DESC);

-- Lists go by the time of submission, the newest first.
DROP INDEX jobs_newest;
CREATE INDEX jobs_newest ON jobs (tenant_id, submitted_at DESC, job_id DESC);
CREATE INDEX jobs_newest_in_state ON jobs (tenant_id, state, end_state, submitted_at DESC, job_id DESC);
CREATE INDEX jobs_newest_of_image ON jobs (tenant_id, image, submitted_at DESC, job_id DESC);
CREATE INDEX jobs_newest_of_batch ON jobs (tenant_id, batch_id, submitted_at DESC, job_id DESC)
    WHERE batch_id IS NOT NULL;

-- The labels of each job, to find it by.
CREATE TABLE job_labels (
    tenant_id    BLOB    NOT NULL,
    name         TEXT    NOT NULL,
    value        TEXT    NOT NULL,
    submitted_at INTEGER NOT NULL,
    job_id       BLOB    NOT NULL,
    PRIMARY KEY (tenant_id, name, value, submitted_at DESC, job_id DESC)
) STRICT, WITHOUT ROWID;
INSERT INTO job_labels (tenant_id, name, value, submitted_at, job_id)
SELECT jobs.tenant_id, label.key, label.value, jobs.submitted_at, jobs.job_id
  FROM jobs, json_each(jobs.labels) label;

-- Messages that were set aside. Those about attempts hold nothing: the attempts are on record.
CREATE TABLE dead_letters (
    -- The SHA-256 of the message.
    letter_id  BLOB    NOT NULL PRIMARY KEY CHECK (length(letter_id) = 32),
    at         INTEGER NOT NULL,
    origin     TEXT    NOT NULL CHECK (origin IN ('jobs', 'events')),
    pool       TEXT    NOT NULL,
    cause      TEXT    NOT NULL CHECK (cause IN ('rejected', 'delivery_limit', 'set_aside')),
    -- Text of whoever set it aside, which may quote the message.
    reason     BLOB,
    bytes      INTEGER NOT NULL,
    tenant_id  BLOB,
    job_id     BLOB,
    attempt_id BLOB,
    -- The message itself, and who had published it, where it is about no attempt.
    content    BLOB,
    sender     TEXT,
    CHECK ((attempt_id IS NULL) = (job_id IS NULL)),
    CHECK ((attempt_id IS NULL) = (tenant_id IS NULL)),
    CHECK ((attempt_id IS NULL) = (content IS NOT NULL)),
    CHECK ((attempt_id IS NULL) = (sender IS NOT NULL))
) STRICT;
CREATE INDEX dead_letters_oldest ON dead_letters (at, letter_id);
