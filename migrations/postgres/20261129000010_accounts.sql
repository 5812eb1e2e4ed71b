-- Who uses the API: tenants, and the keys that stand for them. A key is looked for before it is known whose it is, so that
-- these rows are seen by transactions that say they are about accounts (app.accounts), and by no others.
CREATE TABLE tenants (
    tenant_id  uuid        NOT NULL PRIMARY KEY,
    name       text        NOT NULL UNIQUE,
    -- Its share of the fleet beside other tenants'.
    weight     bigint      NOT NULL CHECK (weight BETWEEN 1 AND 1000),
    -- Most attempts in flight and most queued jobs that it may have in each pool; NULL where there is no bound.
    most_in_flight bigint  CHECK (most_in_flight >= 0),
    most_queued    bigint  CHECK (most_queued >= 0),
    created_at timestamptz NOT NULL
);

CREATE TRIGGER tenants_stay_who_they_are BEFORE UPDATE ON tenants FOR EACH ROW
WHEN (NEW.tenant_id <> OLD.tenant_id OR NEW.name <> OLD.name OR NEW.created_at <> OLD.created_at)
EXECUTE FUNCTION mayfly_refuse('a tenant stays who it is');
CREATE TRIGGER tenants_never_go BEFORE DELETE ON tenants FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a tenant is kept');

CREATE TABLE api_keys (
    key_id       uuid        NOT NULL PRIMARY KEY,
    -- Whose; NULL for one of the fleet's own.
    tenant_id    uuid        REFERENCES tenants (tenant_id),
    role         text        NOT NULL CHECK (role IN ('admin', 'operator', 'submitter', 'viewer', 'auditor')),
    name         text        NOT NULL,
    -- SHA-256 of the secret, which is kept nowhere.
    secret       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CHECK (CASE role WHEN 'admin' THEN true WHEN 'operator' THEN tenant_id IS NULL ELSE tenant_id IS NOT NULL END)
);

CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, key_id);

CREATE TRIGGER api_keys_open_what_they_were_made_for BEFORE UPDATE ON api_keys FOR EACH ROW
WHEN (NEW.key_id <> OLD.key_id OR NEW.tenant_id IS DISTINCT FROM OLD.tenant_id OR NEW.role <> OLD.role
      OR NEW.name <> OLD.name OR NEW.secret <> OLD.secret OR NEW.created_at <> OLD.created_at
      OR NEW.expires_at IS DISTINCT FROM OLD.expires_at)
EXECUTE FUNCTION mayfly_refuse('a key stays what it was made as');
CREATE TRIGGER api_keys_are_revoked_for_good BEFORE UPDATE ON api_keys FOR EACH ROW
WHEN (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
EXECUTE FUNCTION mayfly_refuse('the key was revoked, and that is final');
CREATE TRIGGER api_keys_never_go BEFORE DELETE ON api_keys FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('a key is kept');

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY of_accounts ON tenants TO mayfly_api
    USING (current_setting('app.accounts', true) = 'on') WITH CHECK (current_setting('app.accounts', true) = 'on');
CREATE POLICY of_accounts ON api_keys TO mayfly_api
    USING (current_setting('app.accounts', true) = 'on') WITH CHECK (current_setting('app.accounts', true) = 'on');

GRANT SELECT, INSERT ON tenants, api_keys TO mayfly_api;
GRANT UPDATE (revoked_at, last_used_at) ON api_keys TO mayfly_api;
GRANT UPDATE (weight, most_in_flight, most_queued) ON tenants TO mayfly_api;

-- A tenant's own quota is looked at when it submits, beside what it has queued.
CREATE POLICY of_the_tenant ON tenants FOR SELECT TO mayfly_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);

-- Whose turn it is depends on weights and quotas: of tenants the scheduler sees those, and not who they are.
CREATE POLICY of_the_scheduler ON tenants FOR SELECT TO mayfly_engine USING (true);
GRANT SELECT (tenant_id, weight, most_in_flight) ON tenants TO mayfly_engine;
