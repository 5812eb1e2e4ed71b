-- The migration of the same number makes indexes alone: the rows are those of the ones before it.
SELECT 1;
