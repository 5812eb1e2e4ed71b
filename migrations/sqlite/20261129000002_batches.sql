-- Batches: jobs that were made from one thing, each with the name of its item in it. A program that knows of none would
-- take their jobs for anybody's, so that older readers are refused from here on.
UPDATE schema_reader SET min_reader = 2;

CREATE TABLE batches (
    batch_id   BLOB    NOT NULL PRIMARY KEY,
    tenant_id  BLOB    NOT NULL,
    -- What it was made from, for people; empty once it is erased.
    input      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    -- How many jobs it has, once all of them are accepted.
    items      INTEGER CHECK (items >= 0)
) STRICT;

CREATE INDEX batches_newest ON batches (tenant_id, batch_id DESC);

CREATE TRIGGER batches_never_change BEFORE UPDATE ON batches
WHEN NEW.batch_id IS NOT OLD.batch_id OR NEW.tenant_id IS NOT OLD.tenant_id OR NEW.created_at IS NOT OLD.created_at
     OR (NEW.input IS NOT OLD.input AND NEW.input <> '')
     OR (OLD.items IS NOT NULL AND NEW.items IS NOT OLD.items)
BEGIN
    SELECT RAISE(ABORT, 'a batch is completed once, and else never changes');
END;
CREATE TRIGGER batches_never_go BEFORE DELETE ON batches
BEGIN
    SELECT RAISE(ABORT, 'a batch is kept');
END;
CREATE TRIGGER batches_begin_once BEFORE INSERT ON batches
WHEN EXISTS (SELECT 1 FROM batches WHERE batch_id = NEW.batch_id)
BEGIN
    SELECT RAISE(ABORT, 'there is such a batch, and it begins once');
END;

ALTER TABLE jobs ADD COLUMN batch_id BLOB REFERENCES batches (batch_id);
-- Its place in the batch, from 1.
ALTER TABLE jobs ADD COLUMN batch_position INTEGER CHECK ((batch_position IS NULL) = (batch_id IS NULL));

CREATE UNIQUE INDEX jobs_in_batch ON jobs (batch_id, batch_position) WHERE batch_id IS NOT NULL;
-- How a batch's jobs stand is counted in the index alone.
CREATE INDEX jobs_of_batch_by_state ON jobs (tenant_id, batch_id, state, end_state) WHERE batch_id IS NOT NULL;

CREATE TRIGGER jobs_stay_in_their_batch BEFORE UPDATE OF batch_id, batch_position, tenant_id ON jobs
WHEN NEW.batch_id IS NOT OLD.batch_id OR NEW.batch_position IS NOT OLD.batch_position
     OR NEW.tenant_id IS NOT OLD.tenant_id
BEGIN
    SELECT RAISE(ABORT, 'a job stays what it was accepted as');
END;
CREATE TRIGGER jobs_join_their_own_batch BEFORE INSERT ON jobs
WHEN NEW.batch_id IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM batches
                      WHERE batch_id = NEW.batch_id AND tenant_id = NEW.tenant_id AND items IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'there is no such batch of this tenant that takes further jobs');
END;

-- The names of a batch's items, apart from the rows that the jobs' moves write. They may be erased, and never changed.
CREATE TABLE batch_items (
    batch_id BLOB NOT NULL REFERENCES batches (batch_id),
    item     TEXT NOT NULL CHECK (length(CAST(item AS BLOB)) BETWEEN 1 AND 255),
    job_id   BLOB NOT NULL UNIQUE REFERENCES jobs (job_id),
    PRIMARY KEY (batch_id, item)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER batch_items_never_change BEFORE UPDATE ON batch_items
BEGIN
    SELECT RAISE(ABORT, 'the item of a job never changes');
END;
CREATE TRIGGER batch_items_are_named_once BEFORE INSERT ON batch_items
WHEN EXISTS (SELECT 1 FROM batch_items
              WHERE (batch_id = NEW.batch_id AND item = NEW.item) OR job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'there is such an item in the batch, and it is accepted once');
END;
