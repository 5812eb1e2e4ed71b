-- The fleet's database. The role that runs this owns every table and serves nobody; the two roles that do are made before:
--   mayfly_api     what tenants' requests see: the rows of one tenant, named anew in each transaction (app.tenant_id);
--   mayfly_engine  scheduler, recorder, reconciler: all tenants' jobs, attempts, sessions and audit events, nothing else.
-- Documents are JSON as text and not jsonb, which can't hold U+0000; what tenants or runs chose byte by byte is bytea.

CREATE TABLE schema_reader (
    -- Which schema this is: a program refuses an older one than it knows.
    version    bigint NOT NULL,
    -- The oldest reader that this schema serves: a program refuses only below it.
    min_reader bigint NOT NULL
);
INSERT INTO schema_reader (version, min_reader) VALUES (1, 1);

-- Refuses whatever a trigger guards against, with the reason that the trigger gives.
CREATE FUNCTION mayfly_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$;

-- Batches: jobs that were made from one thing, each with the name of its item in it.
CREATE TABLE batches (
    tenant_id  uuid        NOT NULL,
    batch_id   uuid        NOT NULL,
    -- What it was made from, for people; empty once it is erased.
    input      bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    -- Jobs accepted so far, which is also the place of the newest.
    accepted   bigint      NOT NULL DEFAULT 0 CHECK (accepted >= 0),
    -- How many jobs it has, once all of them are accepted.
    items      bigint      CHECK (items >= 0),
    PRIMARY KEY (tenant_id, batch_id)
);

CREATE TRIGGER batches_never_change BEFORE UPDATE ON batches FOR EACH ROW
WHEN (NEW.batch_id <> OLD.batch_id OR NEW.tenant_id <> OLD.tenant_id OR NEW.created_at <> OLD.created_at
      OR (NEW.input <> OLD.input AND NEW.input <> '') OR NEW.accepted < OLD.accepted
      OR (OLD.items IS NOT NULL AND (NEW.items IS DISTINCT FROM OLD.items OR NEW.accepted <> OLD.accepted)))
EXECUTE FUNCTION mayfly_refuse('a batch is completed once, and else never changes');
CREATE TRIGGER batches_never_go BEFORE DELETE ON batches FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a batch is kept');

-- Ids of jobs are made by the server, with 74 random bits: that one is taken tells a tenant nothing, so that job_id may be
-- unique by itself, which the roles that work across tenants rely on. No partitions: each job is looked up by its id
-- alone, which would mean a look into each of them, and no key that spans them could be enforced.
CREATE TABLE jobs (
    tenant_id       uuid        NOT NULL,
    job_id          uuid        NOT NULL,
    -- Which executors may take it.
    pool            text        NOT NULL,
    state           text        NOT NULL
                    CHECK (state IN ('queued', 'dispatched', 'started', 'cancel_requested', 'ended')),
    priority        smallint    NOT NULL,
    -- Attempts made so far, and the one that stands.
    attempts        bigint      NOT NULL DEFAULT 0,
    current_attempt uuid,
    -- Parts of the resolved job that decisions and events are made of, beside the content, which may be long.
    retry           text        NOT NULL,
    asked           text        NOT NULL,
    labels          text        NOT NULL,
    image           text        NOT NULL,
    image_digest    text        NOT NULL,
    policy_version  text        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    -- A queued job is not dispatched before this.
    ready_at        timestamptz NOT NULL,
    expires_at      timestamptz,
    ended_at        timestamptz,
    end_state       text,
    -- How it ended, with the evidence.
    outcome         text,
    batch_id        uuid,
    -- Its place in the batch, from 1.
    batch_position  bigint,
    FOREIGN KEY (tenant_id, batch_id) REFERENCES batches (tenant_id, batch_id),
    CHECK ((state = 'ended') = (end_state IS NOT NULL)),
    CHECK ((state = 'ended') = (outcome IS NOT NULL)),
    CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CHECK ((batch_position IS NULL) = (batch_id IS NULL))
-- What a job's moves write stands in no index, so that with room in its page each of them is a HOT update.
) WITH (fillfactor = 70);

-- Lists go by the time of submission, the newest first.
CREATE INDEX jobs_newest ON jobs (tenant_id, submitted_at, job_id);
CREATE INDEX jobs_newest_of_image ON jobs (tenant_id, image, submitted_at, job_id);
CREATE INDEX jobs_newest_of_batch ON jobs (tenant_id, batch_id, submitted_at, job_id) WHERE batch_id IS NOT NULL;
-- The keys come last. As long as a table has no statistics the planner finds all of its indexes equally good for a job of a
-- tenant, those above included, in which that is a walk through all of the tenant's jobs; of equals it takes the newest.
ALTER TABLE jobs ADD PRIMARY KEY (tenant_id, job_id), ADD UNIQUE (job_id);
CREATE UNIQUE INDEX jobs_in_batch ON jobs (tenant_id, batch_id, batch_position) WHERE batch_id IS NOT NULL;

CREATE TRIGGER jobs_end_is_final BEFORE UPDATE ON jobs FOR EACH ROW WHEN (OLD.state = 'ended')
EXECUTE FUNCTION mayfly_refuse('the job has ended, and an end is final');
CREATE TRIGGER jobs_stay_what_they_are BEFORE UPDATE ON jobs FOR EACH ROW
WHEN (NEW.job_id <> OLD.job_id OR NEW.tenant_id <> OLD.tenant_id OR NEW.submitted_at <> OLD.submitted_at
      OR NEW.batch_id IS DISTINCT FROM OLD.batch_id OR NEW.batch_position IS DISTINCT FROM OLD.batch_position)
EXECUTE FUNCTION mayfly_refuse('a job stays what it was accepted as');
CREATE TRIGGER jobs_never_go BEFORE DELETE ON jobs FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('an accepted job is kept');

CREATE FUNCTION mayfly_join_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM public.batches
                    WHERE tenant_id = NEW.tenant_id AND batch_id = NEW.batch_id AND items IS NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'there is no such batch of this tenant that takes further jobs',
                              ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_join_their_own_batch BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.batch_id IS NOT NULL)
EXECUTE FUNCTION mayfly_join_batch();

-- What the tenant gave, apart from the row that every move of the job writes. It may be erased, and never changed.
CREATE TABLE job_contents (
    tenant_id uuid  NOT NULL,
    job_id    uuid  NOT NULL,
    -- The salt of the job's commitments, which goes with the content.
    salt      bytea NOT NULL CHECK (octet_length(salt) = 32),
    -- The whole job as resolved.
    resolved  text  NOT NULL,
    PRIMARY KEY (tenant_id, job_id),
    FOREIGN KEY (tenant_id, job_id) REFERENCES jobs (tenant_id, job_id)
);

CREATE TRIGGER job_contents_never_change BEFORE UPDATE ON job_contents FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('the content of a job never changes');

-- The names of a batch's items, apart from the rows that the jobs' moves write. They may be erased, and never changed.
CREATE TABLE batch_items (
    tenant_id uuid  NOT NULL,
    batch_id  uuid  NOT NULL,
    item      bytea NOT NULL CHECK (octet_length(item) BETWEEN 1 AND 255),
    job_id    uuid  NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, item),
    UNIQUE (tenant_id, job_id),
    FOREIGN KEY (tenant_id, batch_id) REFERENCES batches (tenant_id, batch_id),
    FOREIGN KEY (tenant_id, job_id) REFERENCES jobs (tenant_id, job_id)
);

CREATE TRIGGER batch_items_never_change BEFORE UPDATE ON batch_items FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('the item of a job never changes');

-- The ends of a batch's jobs, numbered in the order of their commits: whoever ends one holds the row of the count until
-- it commits.
CREATE TABLE batch_counts (
    tenant_id uuid   NOT NULL,
    batch_id  uuid   NOT NULL,
    ended     bigint NOT NULL,
    PRIMARY KEY (tenant_id, batch_id),
    FOREIGN KEY (tenant_id, batch_id) REFERENCES batches (tenant_id, batch_id)
);

CREATE TABLE batch_ends (
    tenant_id uuid   NOT NULL,
    batch_id  uuid   NOT NULL,
    -- From 1.
    position  bigint NOT NULL,
    job_id    uuid   NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, position),
    FOREIGN KEY (tenant_id, job_id) REFERENCES jobs (tenant_id, job_id)
);

-- Attempts are made by the engine alone and looked up by their id alone; no partitions, for the same reason as jobs.
CREATE TABLE attempts (
    tenant_id    uuid        NOT NULL,
    attempt_id   uuid        NOT NULL,
    job_id       uuid        NOT NULL,
    -- From 1.
    number       bigint      NOT NULL,
    pool         text        NOT NULL,
    state        text        NOT NULL
                 CHECK (state IN ('dispatched', 'started', 'ended')),
    -- The newest publication, when it was decided, and whether the broker has confirmed it.
    publication  bigint      NOT NULL,
    published_at timestamptz NOT NULL,
    confirmed    boolean     NOT NULL DEFAULT false,
    -- How often a publication came back as a dead letter.
    dead_letters bigint      NOT NULL DEFAULT 0,
    session_id   uuid,
    executor_id  uuid,
    started_at   timestamptz,
    ended_at     timestamptz,
    -- Why it is over.
    cause        text,
    PRIMARY KEY (attempt_id, tenant_id),
    UNIQUE (tenant_id, job_id, number),
    FOREIGN KEY (tenant_id, job_id) REFERENCES jobs (tenant_id, job_id),
    CHECK (state <> 'dispatched' OR session_id IS NULL),
    CHECK (state <> 'started' OR session_id IS NOT NULL),
    CHECK ((session_id IS NULL) = (executor_id IS NULL)),
    CHECK ((session_id IS NULL) = (started_at IS NULL)),
    CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CHECK ((state = 'ended') = (cause IS NOT NULL))
) WITH (fillfactor = 70);

CREATE TRIGGER attempts_end_is_final BEFORE UPDATE ON attempts FOR EACH ROW WHEN (OLD.state = 'ended')
EXECUTE FUNCTION mayfly_refuse('the attempt is over, and an end is final');
CREATE TRIGGER attempts_start_once BEFORE UPDATE ON attempts FOR EACH ROW
WHEN (OLD.session_id IS NOT NULL
      AND (NEW.session_id IS DISTINCT FROM OLD.session_id OR NEW.executor_id IS DISTINCT FROM OLD.executor_id
           OR NEW.started_at IS DISTINCT FROM OLD.started_at))
EXECUTE FUNCTION mayfly_refuse('the attempt has started, and it starts at most once');
CREATE TRIGGER attempts_stay_what_they_are BEFORE UPDATE ON attempts FOR EACH ROW
WHEN (NEW.attempt_id <> OLD.attempt_id OR NEW.tenant_id <> OLD.tenant_id OR NEW.job_id <> OLD.job_id
      OR NEW.number <> OLD.number)
EXECUTE FUNCTION mayfly_refuse('an attempt stays one at its job');
CREATE TRIGGER attempts_never_go BEFORE DELETE ON attempts FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('an attempt is kept');

-- What a run left: its report, and what is kept of its output. Written once; it may be erased, and never changed. It is
-- erased by tenant and by legal hold and not by age alone, so that partitions would drop nothing.
CREATE TABLE results (
    tenant_id   uuid  NOT NULL,
    attempt_id  uuid  NOT NULL,
    -- The report without the output.
    report      text  NOT NULL,
    stdout_head bytea NOT NULL,
    stdout_tail bytea NOT NULL,
    stderr_head bytea NOT NULL,
    stderr_tail bytea NOT NULL,
    PRIMARY KEY (tenant_id, attempt_id),
    FOREIGN KEY (attempt_id, tenant_id) REFERENCES attempts (attempt_id, tenant_id)
);

CREATE TRIGGER results_are_final BEFORE UPDATE ON results FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a result is final');

-- LZ4 is several times faster than PostgreSQL's own, and some builds are without it.
DO $$
BEGIN
    ALTER TABLE job_contents ALTER COLUMN resolved SET COMPRESSION lz4;
    ALTER TABLE results ALTER COLUMN stdout_head SET COMPRESSION lz4, ALTER COLUMN stdout_tail SET COMPRESSION lz4,
                        ALTER COLUMN stderr_head SET COMPRESSION lz4, ALTER COLUMN stderr_tail SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

-- One life of an executor's process each.
CREATE TABLE sessions (
    session_id  uuid        NOT NULL PRIMARY KEY,
    executor_id uuid        NOT NULL,
    pool        text        NOT NULL,
    -- How it ended; NULL while it is live.
    ended       text        CHECK (ended IN ('closed', 'lease_ended', 'succeeded_by_another')),
    -- Every event up to this number is processed.
    processed   bigint      NOT NULL,
    lease_end   timestamptz NOT NULL,
    slots       bigint      NOT NULL,
    free_slots  bigint      NOT NULL,
    -- The attempts that it has started and that are not over, written with the number above. So neither what a session
    -- holds nor how much a pool runs is searched for among rows that are long dead.
    held        uuid[]      NOT NULL DEFAULT '{}',
    facts       text        NOT NULL,
    opened_at   timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK (ended IS NULL OR held = '{}')
) WITH (fillfactor = 50);

CREATE INDEX sessions_live ON sessions (executor_id) WHERE ended IS NULL;
CREATE INDEX sessions_live_in_pool ON sessions (pool) WHERE ended IS NULL;

CREATE TRIGGER sessions_end_is_final BEFORE UPDATE ON sessions FOR EACH ROW
WHEN (OLD.ended IS NOT NULL AND NEW.ended IS DISTINCT FROM OLD.ended)
EXECUTE FUNCTION mayfly_refuse('the session is over, and a lease that has ended is final');

-- What is known of a recorder's queue: its life, and the ticks in it.
CREATE TABLE queues (
    queue           text        NOT NULL PRIMARY KEY,
    epoch           bigint      NOT NULL,
    ticks_sent      bigint      NOT NULL,
    last_tick_at    timestamptz NOT NULL,
    ticks_processed bigint      NOT NULL
);

-- What the scheduler reads, apart from the jobs: each row is of a queued job, is written when that may be dispatched (or is
-- known to be later), and goes when it is. So a look costs the same however many jobs are stored.
CREATE TABLE ready_jobs (
    pool         text    NOT NULL,
    tenant_id    uuid    NOT NULL,
    -- Less its priority: what goes first comes first.
    rank         integer NOT NULL,
    image_digest text    NOT NULL,
    job_id       uuid    NOT NULL,
    PRIMARY KEY (pool, tenant_id, rank, image_digest, job_id)
);

CREATE TABLE delayed_jobs (
    pool         text        NOT NULL,
    ready_at     timestamptz NOT NULL,
    job_id       uuid        NOT NULL,
    rank         integer     NOT NULL,
    tenant_id    uuid        NOT NULL,
    image_digest text        NOT NULL,
    PRIMARY KEY (pool, ready_at, job_id)
);

-- What has happened in a pool since its scheduler last looked, written beside the rows that it is about: in which lanes
-- jobs have come to be ready, and by how much a tenant's counts change. The scheduler removes what it has read.
--
-- made_by is the transaction that wrote a row: all of it that was over when the scheduler last looked has been read, so that
-- it begins at the oldest that was not. A row that is gone is walked over by nobody then, also where a snapshot that somebody
-- holds keeps it from being swept.
CREATE TABLE pool_news (
    pool         text   NOT NULL,
    made_by      bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    tenant_id    uuid   NOT NULL,
    -- A lane, and the first of the jobs that have come to it.
    rank         integer,
    image_digest text,
    first_job    uuid,
    -- Jobs that wait; attempts that are dispatched or started; those that are started, and the sum of the moments at which
    -- they did, in milliseconds; runs that ended, and how long they took, in microseconds.
    queued       bigint NOT NULL,
    in_flight    bigint NOT NULL,
    started      bigint NOT NULL,
    started_ms   bigint NOT NULL,
    ended        bigint NOT NULL,
    ended_us     bigint NOT NULL,
    CHECK ((rank IS NULL) = (image_digest IS NULL) AND (rank IS NULL) = (first_job IS NULL))
);
CREATE INDEX pool_news_in_order ON pool_news (pool, made_by);

-- A tenant's ready jobs of one priority and one image, in the order of their ids: the scheduler's own, who alone writes it.
CREATE TABLE lanes (
    pool         text        NOT NULL,
    tenant_id    uuid        NOT NULL,
    rank         integer     NOT NULL,
    image_digest text        NOT NULL,
    -- No job of it has a lesser id: where a look begins, past the rows that are gone.
    first_job    uuid        NOT NULL,
    -- Whether there may be jobs in it. One without any is forgotten after a while, and not at once, since rows that come and
    -- go all the time would be walked over where a snapshot is held.
    active       boolean     NOT NULL,
    emptied_at   timestamptz,
    PRIMARY KEY (pool, tenant_id, rank, image_digest)
) WITH (fillfactor = 50);

-- What tenants have had of each pool and have in it, and the pools themselves: shares are in seconds of slots. The
-- scheduler's own too.
CREATE TABLE pool_shares (
    pool       text             NOT NULL PRIMARY KEY,
    level      double precision NOT NULL,
    mean_run   double precision NOT NULL,
    -- The news of transactions before this one are read.
    read_to    bigint           NOT NULL,
    -- Where the next look at who wants slots begins, after one that did not come to the end.
    look_from  uuid             NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE tenant_shares (
    pool       text             NOT NULL,
    tenant_id  uuid             NOT NULL,
    account    double precision NOT NULL,
    -- As in the news, summed up.
    queued     bigint           NOT NULL,
    in_flight  bigint           NOT NULL,
    started    bigint           NOT NULL,
    started_ms bigint           NOT NULL,
    -- Whether it has anything in flight. An index of the count would be written by every change of it.
    busy       boolean          NOT NULL,
    PRIMARY KEY (pool, tenant_id)
) WITH (fillfactor = 50);
CREATE INDEX tenant_shares_busy ON tenant_shares (pool, tenant_id) WHERE busy;

-- What has not been read begins here. A number that lies ahead is of another server, from which this was restored.
CREATE FUNCTION mayfly_news_from(of_pool text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT read_to FROM public.pool_shares
                      WHERE pool = of_pool AND read_to <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint), 0)
$$;

-- Jobs that expire and have not started once.
CREATE TABLE expiring_jobs (
    pool       text        NOT NULL,
    expires_at timestamptz NOT NULL,
    job_id     uuid        NOT NULL,
    tenant_id  uuid        NOT NULL,
    PRIMARY KEY (pool, expires_at, job_id)
);

-- Dispatched attempts that no session has started.
CREATE TABLE unstarted_attempts (
    pool       text NOT NULL,
    attempt_id uuid NOT NULL,
    job_id     uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    PRIMARY KEY (pool, attempt_id)
);

-- How many attempts of a pool wait for their start: those dispatched less those departed from there. Two rows, since the
-- scheduler writes the one and the recorder the other, and neither waits for the other's commit.
CREATE TABLE pool_dispatches (
    pool  text   NOT NULL PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE pool_departures (
    pool  text   NOT NULL PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- How many attempts of a pool have ended in which second.
CREATE TABLE pool_ends (
    pool   text        NOT NULL,
    second timestamptz NOT NULL,
    count  bigint      NOT NULL,
    PRIMARY KEY (pool, second)
);

-- What each name of the image catalog means.
CREATE TABLE images (
    name          text        NOT NULL PRIMARY KEY,
    reference     text        NOT NULL,
    digest        text        NOT NULL,
    config_digest text        NOT NULL,
    platform      text        NOT NULL,
    pinned_at     timestamptz NOT NULL
);
