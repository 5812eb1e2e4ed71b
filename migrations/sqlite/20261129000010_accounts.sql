-- Who uses the API: tenants, and the keys that stand for them. Programs that know of neither go on as they did.

CREATE TABLE tenants (
    tenant_id  BLOB    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    -- Its share of the fleet beside other tenants'.
    weight     INTEGER NOT NULL CHECK (weight BETWEEN 1 AND 1000),
    created_at INTEGER NOT NULL,
    -- Most attempts in flight and most queued jobs that it may have in each pool; NULL where there is no bound.
    most_in_flight INTEGER CHECK (most_in_flight >= 0),
    most_queued    INTEGER CHECK (most_queued >= 0)
) STRICT;

CREATE TRIGGER tenants_stay_who_they_are BEFORE UPDATE ON tenants
WHEN NEW.tenant_id IS NOT OLD.tenant_id OR NEW.name IS NOT OLD.name OR NEW.created_at IS NOT OLD.created_at
BEGIN
    SELECT RAISE(ABORT, 'a tenant stays who it is');
END;
CREATE TRIGGER tenants_never_go BEFORE DELETE ON tenants
BEGIN
    SELECT RAISE(ABORT, 'a tenant is kept');
END;
CREATE TRIGGER tenants_are_made_once BEFORE INSERT ON tenants
WHEN EXISTS (SELECT 1 FROM tenants WHERE tenant_id = NEW.tenant_id OR name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'there is such a tenant, and it is made once');
END;

CREATE TABLE api_keys (
    key_id       BLOB    NOT NULL PRIMARY KEY,
    -- Whose; NULL for one of the fleet's own.
    tenant_id    BLOB    REFERENCES tenants (tenant_id),
    role         TEXT    NOT NULL CHECK (role IN ('admin', 'operator', 'submitter', 'viewer', 'auditor')),
    name         TEXT    NOT NULL,
    -- SHA-256 of the secret, which is kept nowhere.
    secret       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER,
    CHECK (CASE role WHEN 'admin' THEN 1 WHEN 'operator' THEN tenant_id IS NULL ELSE tenant_id IS NOT NULL END)
) STRICT;

CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, key_id);

CREATE TRIGGER api_keys_open_what_they_were_made_for BEFORE UPDATE ON api_keys
WHEN NEW.key_id IS NOT OLD.key_id OR NEW.tenant_id IS NOT OLD.tenant_id OR NEW.role IS NOT OLD.role
     OR NEW.name IS NOT OLD.name OR NEW.secret IS NOT OLD.secret OR NEW.created_at IS NOT OLD.created_at
     OR NEW.expires_at IS NOT OLD.expires_at
BEGIN
    SELECT RAISE(ABORT, 'a key stays what it was made as');
END;
CREATE TRIGGER api_keys_are_revoked_for_good BEFORE UPDATE OF revoked_at ON api_keys
WHEN OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NOT OLD.revoked_at
BEGIN
    SELECT RAISE(ABORT, 'the key was revoked, and that is final');
END;
CREATE TRIGGER api_keys_never_go BEFORE DELETE ON api_keys
BEGIN
    SELECT RAISE(ABORT, 'a key is kept');
END;
CREATE TRIGGER api_keys_are_made_once BEFORE INSERT ON api_keys
WHEN EXISTS (SELECT 1 FROM api_keys WHERE key_id = NEW.key_id)
BEGIN
    SELECT RAISE(ABORT, 'there is such a key, and it is made once');
END;
