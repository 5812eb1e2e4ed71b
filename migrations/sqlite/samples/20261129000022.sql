-- Rows as they stand after the migration of the same number, for the ones after it.
INSERT INTO pool_shares (pool, level, mean_run, counted_to, look_from) VALUES ('python', 12.5, 0.25, 1795910400000000, X'');
INSERT INTO tenant_shares (pool, tenant_id, account) VALUES ('python', X'00000000000000000000000000000000', 12.5);
