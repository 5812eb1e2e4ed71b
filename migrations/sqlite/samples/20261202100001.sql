-- Rows as they stand after the migration of the same number, for the ones after it: a secret of the one tenant.
INSERT INTO tenant_secrets (tenant_id, name, value_id, sealed, set_at)
VALUES (X'00000000000000000000000000000000', 'KEY', X'0193e000000070008000000000000001', X'00ff', 1764547200000000);
