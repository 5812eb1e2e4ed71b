-- Files that runs have made, in pieces: left here by their executors while the attempt runs, and kept for as long as its
-- result is where the report that is recorded names them. In the transaction in which an attempt ends, whichever way, every
-- piece of it goes that no report has named.
CREATE TABLE artifact_pieces (
    tenant_id  uuid    NOT NULL,
    attempt_id uuid    NOT NULL,
    -- The file's number among those of the attempt, and the piece's number in it; both from 0.
    file       integer NOT NULL CHECK (file >= 0),
    piece      integer NOT NULL CHECK (piece >= 0),
    digest     bytea   NOT NULL CHECK (octet_length(digest) = 32),
    bytes      integer NOT NULL CHECK (bytes = octet_length(content) AND bytes BETWEEN 1 AND 1048576),
    content    bytea   NOT NULL,
    PRIMARY KEY (attempt_id, tenant_id, file, piece),
    FOREIGN KEY (attempt_id, tenant_id) REFERENCES attempts (attempt_id, tenant_id)
);

CREATE TRIGGER artifact_pieces_never_change BEFORE UPDATE ON artifact_pieces FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a piece of a file never changes');

-- As for results: LZ4 is several times faster than PostgreSQL's own, and some builds are without it.
DO $$
BEGIN
    ALTER TABLE artifact_pieces ALTER COLUMN content SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

ALTER TABLE artifact_pieces ENABLE ROW LEVEL SECURITY;
ALTER TABLE artifact_pieces FORCE ROW LEVEL SECURITY;
CREATE POLICY of_the_tenant ON artifact_pieces TO mayfly_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY across_tenants ON artifact_pieces TO mayfly_engine USING (true) WITH CHECK (true);
GRANT SELECT ON artifact_pieces TO mayfly_api;
GRANT SELECT, INSERT, DELETE ON artifact_pieces TO mayfly_engine;
