-- Secrets that are kept for tenants, sealed: the key to them is in a file beside the database.
CREATE TABLE tenant_secrets (
    tenant_id BLOB    NOT NULL,
    name      TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    -- Another one with each value that is set.
    value_id  BLOB    NOT NULL,
    sealed    BLOB    NOT NULL CHECK (length(sealed) <= 65536),
    set_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT;

-- What was given to whom stands in the audit log by the value's id.
CREATE TRIGGER secrets_change_with_their_ids BEFORE UPDATE ON tenant_secrets
WHEN OLD.tenant_id <> NEW.tenant_id OR OLD.name <> NEW.name OR OLD.value_id = NEW.value_id
BEGIN
    SELECT RAISE(ABORT, 'another value of a secret has another id');
END;
