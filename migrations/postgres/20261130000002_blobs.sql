-- What runs have written that is too long for the message of their reports: left here by their executors until the report
-- that names it is recorded. Only an attempt that has started and is not over has any, and it goes in the transaction in
-- which that ends, whichever way: nothing is ever left over.
CREATE TABLE output_blobs (
    tenant_id  uuid   NOT NULL,
    attempt_id uuid   NOT NULL,
    digest     bytea  NOT NULL CHECK (octet_length(digest) = 32),
    bytes      bigint NOT NULL CHECK (bytes = octet_length(content)),
    content    bytea  NOT NULL,
    PRIMARY KEY (attempt_id, tenant_id),
    FOREIGN KEY (attempt_id, tenant_id) REFERENCES attempts (attempt_id, tenant_id)
);

CREATE TRIGGER output_blobs_never_change BEFORE UPDATE ON output_blobs FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('what was left of an output never changes');

-- As for results: LZ4 is several times faster than PostgreSQL's own, and some builds are without it.
DO $$
BEGIN
    ALTER TABLE output_blobs ALTER COLUMN content SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

ALTER TABLE output_blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE output_blobs FORCE ROW LEVEL SECURITY;
CREATE POLICY of_the_tenant ON output_blobs TO mayfly_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY across_tenants ON output_blobs TO mayfly_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON output_blobs TO mayfly_engine;
