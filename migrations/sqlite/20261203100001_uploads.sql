-- Files that tenants have uploaded, in pieces. One is found by its digest once it is whole, which needs `kept_at`; jobs have
-- it through job_fetches, and while one of them is not over it does not go.
CREATE TABLE uploads (
    upload_id BLOB    NOT NULL PRIMARY KEY,
    tenant_id BLOB    NOT NULL,
    digest    BLOB    NOT NULL CHECK (length(digest) = 32),
    bytes     INTEGER NOT NULL CHECK (bytes >= 0),
    begun_at  INTEGER NOT NULL,
    kept_at   INTEGER,
    used_at   INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX uploads_by_digest ON uploads (tenant_id, digest) WHERE kept_at IS NOT NULL;
CREATE INDEX uploads_of_tenant ON uploads (tenant_id, upload_id);
CREATE INDEX uploads_by_use ON uploads (used_at);

CREATE TRIGGER uploads_stay_what_they_are BEFORE UPDATE ON uploads
WHEN OLD.tenant_id <> NEW.tenant_id OR OLD.upload_id <> NEW.upload_id OR OLD.digest <> NEW.digest
     OR OLD.bytes <> NEW.bytes OR OLD.begun_at <> NEW.begun_at
     OR (OLD.kept_at IS NOT NULL AND NEW.kept_at IS NOT OLD.kept_at)
BEGIN
    SELECT RAISE(ABORT, 'an upload stays what it is');
END;

CREATE TABLE upload_pieces (
    upload_id BLOB    NOT NULL REFERENCES uploads (upload_id),
    -- From 0; all but the last are of one length.
    piece     INTEGER NOT NULL CHECK (piece >= 0),
    bytes     INTEGER NOT NULL CHECK (bytes = length(content) AND bytes BETWEEN 1 AND 1048576),
    content   BLOB    NOT NULL,
    PRIMARY KEY (upload_id, piece)
) STRICT;

CREATE TRIGGER upload_pieces_never_change BEFORE UPDATE ON upload_pieces
BEGIN
    SELECT RAISE(ABORT, 'a piece of an upload never changes');
END;

-- The files that executors fetch for jobs, by their numbers among those of the job. Rows of a job that is over go with the
-- upload.
CREATE TABLE job_fetches (
    job_id    BLOB    NOT NULL REFERENCES jobs (job_id),
    file      INTEGER NOT NULL CHECK (file >= 0),
    upload_id BLOB    NOT NULL REFERENCES uploads (upload_id),
    PRIMARY KEY (job_id, file)
) STRICT;

CREATE INDEX job_fetches_of_upload ON job_fetches (upload_id);

CREATE TRIGGER job_fetches_never_change BEFORE UPDATE ON job_fetches
BEGIN
    SELECT RAISE(ABORT, 'what a job fetches never changes');
END;
