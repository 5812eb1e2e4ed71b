-- Append-only. `body` is the canonical JSON of the event (RFC 8785); the columns beside it are for search. Whoever writes
-- an event makes its id (UUIDv7), by which the table is partitioned. `xact` is the transaction that wrote it: what is
-- older than every running transaction is complete. No sequence is drawn from: its order would not be that of commits.
CREATE TABLE audit_events (
    tenant_id  uuid        NOT NULL,
    event_id   uuid        NOT NULL,
    at         timestamptz NOT NULL,
    job_id     uuid,
    attempt_id uuid,
    kind       text        NOT NULL,
    body       bytea       NOT NULL,
    xact       xid8        NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant_id, event_id)
) PARTITION BY RANGE (event_id);

CREATE INDEX audit_events_of_job ON audit_events (tenant_id, job_id, event_id) WHERE job_id IS NOT NULL;
-- An attempt's events are found by its job; these are about one that nobody knows.
CREATE INDEX audit_events_of_unknown_attempt ON audit_events (tenant_id, attempt_id, event_id)
    WHERE job_id IS NULL AND attempt_id IS NOT NULL;

CREATE TRIGGER audit_events_never_change BEFORE UPDATE ON audit_events FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('audit events are append-only');
CREATE TRIGGER audit_events_never_go BEFORE DELETE ON audit_events FOR EACH ROW
EXECUTE FUNCTION mayfly_refuse('audit events are append-only');
CREATE TRIGGER jobs_are_never_emptied BEFORE TRUNCATE ON jobs FOR EACH STATEMENT
EXECUTE FUNCTION mayfly_refuse('an accepted job is kept');
CREATE TRIGGER attempts_are_never_emptied BEFORE TRUNCATE ON attempts FOR EACH STATEMENT
EXECUTE FUNCTION mayfly_refuse('an attempt is kept');
CREATE TRIGGER batches_are_never_emptied BEFORE TRUNCATE ON batches FOR EACH STATEMENT
EXECUTE FUNCTION mayfly_refuse('a batch is kept');

-- The smallest UUIDv7 of a moment.
CREATE FUNCTION mayfly_first_id(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

-- Guards a partition as its parent is, which inheriting does not do for TRUNCATE and row-level security. Nobody is granted
-- anything on it: it is read and written through its parent alone.
CREATE FUNCTION mayfly_guard_partition(partition text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER audit_events_are_never_emptied BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT
                    EXECUTE FUNCTION public.mayfly_refuse(%L)', partition, 'audit events are append-only');
    EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', partition);
    EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', partition);
END $$;

-- What no month holds: a host's clock may be wrong, and an event is never refused for that.
CREATE TABLE audit_events_else PARTITION OF audit_events DEFAULT;
SELECT mayfly_guard_partition('audit_events_else');

-- Makes the partitions of this month and of some ahead, and returns how many it made. A month of which events are in the
-- partition of everything else stays there. Runs as the owner, so that the roles that call it own nothing.
CREATE FUNCTION mayfly_make_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month timestamp;
    partition text;
    lower uuid;
    upper uuid;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('mayfly partitions', 0));
    FOR ahead IN 0..least(greatest(months_ahead, 0), 24) LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
        partition := 'audit_events_' || to_char(month, 'YYYY_MM');
        lower := public.mayfly_first_id(month AT TIME ZONE 'UTC');
        upper := public.mayfly_first_id((month + interval '1 month') AT TIME ZONE 'UTC');
        CONTINUE WHEN to_regclass('public.' || partition) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE public.%I (LIKE public.audit_events INCLUDING DEFAULTS)', partition);
            PERFORM public.mayfly_guard_partition(partition);
            EXECUTE format('ALTER TABLE public.audit_events ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                           partition, lower, upper);
            made := made + 1;
        EXCEPTION WHEN check_violation THEN
            -- Events of that month are among everything else.
            NULL;
        END;
    END LOOP;
    RETURN made;
END $$;
SELECT mayfly_make_partitions(2);
