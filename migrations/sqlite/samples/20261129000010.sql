-- Rows as they stand after the migration of the same number, for the ones after it: a tenant with a key that is good for
-- ever and one that was revoked, and a key of the fleet's own.
INSERT INTO tenants (tenant_id, name, weight, created_at)
VALUES (X'01A2281D3FE971A0B4EB1D504D33D301', 'team-a', 1, 1795910400000000);
INSERT INTO api_keys (key_id, tenant_id, role, name, secret, created_at, expires_at, revoked_at, last_used_at)
VALUES (X'01A2281D3FE971A0B4EB1D504D33D401', X'01A2281D3FE971A0B4EB1D504D33D301', 'submitter', 'ci', 'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1795910400000000, NULL, NULL, 1795910460000000),
       (X'01A2281D3FE971A0B4EB1D504D33D402', X'01A2281D3FE971A0B4EB1D504D33D301', 'viewer', 'board', 'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1795910400000000, 1796000000000000, 1795910500000000, NULL),
       (X'01A2281D3FE971A0B4EB1D504D33D403', NULL, 'admin', 'first', 'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1795910400000000, NULL, NULL, NULL);
