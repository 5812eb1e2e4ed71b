-- The embedded database: jobs, attempts, sessions, results, audit events, images.
-- Ids are 16 bytes (UUIDv7), times are microseconds since 1970 UTC, digests are text (sha256:...), documents are JSON.

CREATE TABLE schema_reader (
    -- The oldest reader that this schema serves: a program refuses only below it.
    min_reader INTEGER NOT NULL
) STRICT;
INSERT INTO schema_reader (min_reader) VALUES (1);

CREATE TABLE jobs (
    job_id         BLOB    NOT NULL PRIMARY KEY,
    tenant_id      BLOB    NOT NULL,
    -- Which executors may take it.
    pool           TEXT    NOT NULL,
    state          TEXT    NOT NULL
                   CHECK (state IN ('queued', 'dispatched', 'started', 'cancel_requested', 'ended')),
    priority       INTEGER NOT NULL,
    -- Attempts made so far, and the one that stands.
    attempts       INTEGER NOT NULL DEFAULT 0,
    current_attempt BLOB,
    -- Parts of the resolved job that decisions and events are made of, beside the content, which may be long.
    retry          TEXT    NOT NULL,
    asked          TEXT    NOT NULL,
    labels         TEXT    NOT NULL,
    image          TEXT    NOT NULL,
    image_digest   TEXT    NOT NULL,
    policy_version TEXT    NOT NULL,
    submitted_at   INTEGER NOT NULL,
    -- A queued job is not dispatched before this.
    ready_at       INTEGER NOT NULL,
    expires_at     INTEGER,
    ended_at       INTEGER,
    end_state      TEXT,
    -- How it ended, with the evidence.
    outcome        TEXT,
    CHECK ((state = 'ended') = (end_state IS NOT NULL)),
    CHECK ((state = 'ended') = (outcome IS NOT NULL)),
    CHECK ((state = 'ended') = (ended_at IS NOT NULL))
) STRICT;

CREATE INDEX jobs_newest ON jobs (tenant_id, job_id DESC);
-- What the scheduler reads: waiting jobs alone, so that a tick costs the same however many are stored.
CREATE INDEX jobs_ready ON jobs (pool, priority DESC, job_id) WHERE state = 'queued';
CREATE INDEX jobs_waiting ON jobs (pool, ready_at) WHERE state = 'queued';
-- A job that has started once does not expire, however long it then waits for its next attempt.
CREATE INDEX jobs_expiring ON jobs (pool, expires_at, job_id)
    WHERE expires_at IS NOT NULL AND state IN ('queued', 'dispatched') AND attempts <= (state = 'dispatched');

-- One outcome: an end is final, whoever writes. A row that is inserted over another (INSERT OR REPLACE) removes it
-- without firing what guards updates and deletes, so that inserting is guarded too, here and below.
CREATE TRIGGER jobs_end_is_final BEFORE UPDATE ON jobs WHEN OLD.state = 'ended'
BEGIN
    SELECT RAISE(ABORT, 'the job has ended, and an end is final');
END;
CREATE TRIGGER jobs_never_go BEFORE DELETE ON jobs
BEGIN
    SELECT RAISE(ABORT, 'an accepted job is kept');
END;
CREATE TRIGGER jobs_are_accepted_once BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'there is such a job, and it is accepted once');
END;

-- What the tenant gave, apart from the row that every move of the job writes. It may be erased, and never changed.
CREATE TABLE job_contents (
    job_id   BLOB NOT NULL PRIMARY KEY REFERENCES jobs (job_id),
    -- The salt of the job's commitments, which goes with the content.
    salt     BLOB NOT NULL CHECK (length(salt) = 32),
    -- The whole job as resolved.
    resolved TEXT NOT NULL
) STRICT;

CREATE TRIGGER job_contents_never_change BEFORE UPDATE ON job_contents
BEGIN
    SELECT RAISE(ABORT, 'the content of a job never changes');
END;
CREATE TRIGGER job_contents_are_written_once BEFORE INSERT ON job_contents
WHEN EXISTS (SELECT 1 FROM job_contents WHERE job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'the content of a job never changes');
END;

CREATE TABLE attempts (
    attempt_id    BLOB    NOT NULL PRIMARY KEY,
    job_id        BLOB    NOT NULL REFERENCES jobs (job_id),
    -- From 1.
    number        INTEGER NOT NULL,
    pool          TEXT    NOT NULL,
    state         TEXT    NOT NULL
                  CHECK (state IN ('dispatched', 'started', 'ended')),
    -- The newest publication, when it was decided, and whether the broker has confirmed it.
    publication   INTEGER NOT NULL,
    published_at  INTEGER NOT NULL,
    confirmed     INTEGER NOT NULL DEFAULT 0 CHECK (confirmed IN (0, 1)),
    -- How often a publication came back as a dead letter.
    dead_letters  INTEGER NOT NULL DEFAULT 0,
    session_id    BLOB,
    executor_id   BLOB,
    started_at    INTEGER,
    ended_at      INTEGER,
    -- Why it is over.
    cause         TEXT,
    UNIQUE (job_id, number),
    CHECK (state <> 'dispatched' OR session_id IS NULL),
    CHECK (state <> 'started' OR session_id IS NOT NULL),
    CHECK ((session_id IS NULL) = (executor_id IS NULL)),
    CHECK ((session_id IS NULL) = (started_at IS NULL)),
    CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CHECK ((state = 'ended') = (cause IS NOT NULL))
) STRICT;

CREATE INDEX attempts_unstarted ON attempts (pool, attempt_id) WHERE state = 'dispatched';
CREATE INDEX attempts_started ON attempts (pool) WHERE state = 'started';
CREATE INDEX attempts_ended ON attempts (pool, ended_at) WHERE state = 'ended';
CREATE INDEX attempts_held ON attempts (session_id, attempt_id) WHERE state = 'started';

CREATE TRIGGER attempts_start_once BEFORE UPDATE OF session_id, executor_id, started_at ON attempts
WHEN OLD.session_id IS NOT NULL
     AND (NEW.session_id IS NOT OLD.session_id OR NEW.executor_id IS NOT OLD.executor_id
          OR NEW.started_at IS NOT OLD.started_at)
BEGIN
    SELECT RAISE(ABORT, 'the attempt has started, and it starts at most once');
END;
CREATE TRIGGER attempts_never_go BEFORE DELETE ON attempts
BEGIN
    SELECT RAISE(ABORT, 'an attempt is kept');
END;
CREATE TRIGGER attempts_are_made_once BEFORE INSERT ON attempts
WHEN EXISTS (SELECT 1 FROM attempts
              WHERE attempt_id = NEW.attempt_id OR (job_id = NEW.job_id AND number = NEW.number))
BEGIN
    SELECT RAISE(ABORT, 'there is such an attempt, and it is made once');
END;

CREATE TRIGGER attempts_end_is_final BEFORE UPDATE ON attempts WHEN OLD.state = 'ended'
BEGIN
    SELECT RAISE(ABORT, 'the attempt is over, and an end is final');
END;

-- One life of an executor's process each.
CREATE TABLE sessions (
    session_id  BLOB    NOT NULL PRIMARY KEY,
    executor_id BLOB    NOT NULL,
    pool        TEXT    NOT NULL,
    -- How it ended; NULL while it is live.
    ended       TEXT    CHECK (ended IN ('closed', 'lease_ended', 'succeeded_by_another')),
    -- Every event up to this number is processed.
    processed   INTEGER NOT NULL,
    lease_end   INTEGER NOT NULL,
    slots       INTEGER NOT NULL,
    free_slots  INTEGER NOT NULL,
    facts       TEXT    NOT NULL,
    opened_at   INTEGER NOT NULL,
    ended_at    INTEGER
) STRICT;

CREATE INDEX sessions_live ON sessions (executor_id) WHERE ended IS NULL;
CREATE INDEX sessions_live_in_pool ON sessions (pool) WHERE ended IS NULL;

CREATE TRIGGER sessions_end_is_final BEFORE UPDATE OF ended ON sessions WHEN OLD.ended IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'the session is over, and a lease that has ended is final');
END;

-- What is known of the recorder's queue: its life, and the ticks in it. One row for each process that has a queue of its
-- own.
CREATE TABLE queues (
    queue           TEXT    NOT NULL PRIMARY KEY,
    epoch           INTEGER NOT NULL,
    ticks_sent      INTEGER NOT NULL,
    last_tick_at    INTEGER NOT NULL,
    ticks_processed INTEGER NOT NULL
) STRICT;

-- What a run left: its report, and what is kept of its output. Written once; it may be erased, and never changed.
CREATE TABLE results (
    attempt_id  BLOB NOT NULL PRIMARY KEY REFERENCES attempts (attempt_id),
    -- The report without the output.
    report      TEXT NOT NULL,
    stdout_head BLOB NOT NULL,
    stdout_tail BLOB NOT NULL,
    stderr_head BLOB NOT NULL,
    stderr_tail BLOB NOT NULL
) STRICT;

CREATE TRIGGER results_are_final BEFORE UPDATE ON results
BEGIN
    SELECT RAISE(ABORT, 'a result is final');
END;
CREATE TRIGGER results_are_written_once BEFORE INSERT ON results
WHEN EXISTS (SELECT 1 FROM results WHERE attempt_id = NEW.attempt_id)
BEGIN
    SELECT RAISE(ABORT, 'a result is final');
END;

-- Append-only. `body` is the canonical JSON of the event (RFC 8785); the columns beside it are for search.
CREATE TABLE audit_events (
    -- The order in which the events were committed: one transaction writes at a time.
    position   INTEGER NOT NULL PRIMARY KEY CHECK (position > 0),
    event_id   BLOB    NOT NULL UNIQUE,
    at         INTEGER NOT NULL,
    tenant_id  BLOB    NOT NULL,
    job_id     BLOB,
    attempt_id BLOB,
    kind       TEXT    NOT NULL,
    body       BLOB    NOT NULL
) STRICT;

CREATE INDEX audit_events_of_job ON audit_events (job_id, position) WHERE job_id IS NOT NULL;
CREATE INDEX audit_events_of_attempt ON audit_events (attempt_id, position) WHERE attempt_id IS NOT NULL;
CREATE INDEX audit_events_of_tenant ON audit_events (tenant_id, position);

CREATE TRIGGER audit_events_never_change BEFORE UPDATE ON audit_events
BEGIN
    SELECT RAISE(ABORT, 'audit events are append-only');
END;
CREATE TRIGGER audit_events_never_go BEFORE DELETE ON audit_events
BEGIN
    SELECT RAISE(ABORT, 'audit events are append-only');
END;
CREATE TRIGGER audit_events_are_appended BEFORE INSERT ON audit_events
WHEN EXISTS (SELECT 1 FROM audit_events WHERE event_id = NEW.event_id OR position = NEW.position)
BEGIN
    SELECT RAISE(ABORT, 'audit events are append-only');
END;

-- What each name of the image catalog means.
CREATE TABLE images (
    name          TEXT    NOT NULL PRIMARY KEY,
    reference     TEXT    NOT NULL,
    digest        TEXT    NOT NULL,
    config_digest TEXT    NOT NULL,
    platform      TEXT    NOT NULL,
    pinned_at     INTEGER NOT NULL
) STRICT;
