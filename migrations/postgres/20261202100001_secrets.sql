-- Secrets that are kept for tenants, sealed: the key to them is the servers' and is not in the database. The engine's role,
-- which works across tenants, sees none of them.
CREATE TABLE tenant_secrets (
    tenant_id uuid        NOT NULL,
    name      text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 63),
    -- Another one with each value that is set.
    value_id  uuid        NOT NULL,
    sealed    bytea       NOT NULL CHECK (octet_length(sealed) <= 65536),
    set_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- What was given to whom stands in the audit log by the value's id.
CREATE TRIGGER secrets_change_with_their_ids BEFORE UPDATE ON tenant_secrets FOR EACH ROW
WHEN (OLD.tenant_id <> NEW.tenant_id OR OLD.name <> NEW.name OR OLD.value_id = NEW.value_id)
EXECUTE FUNCTION mayfly_refuse('another value of a secret has another id');

ALTER TABLE tenant_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY of_the_tenant ON tenant_secrets TO mayfly_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_secrets TO mayfly_api;
