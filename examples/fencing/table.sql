-- A table of PostgreSQL that checks the token itself, whatever program writes to it: see report.py.
--
--   psql -v ON_ERROR_STOP=1 -f table.sql service=reports

CREATE TABLE report (
    key    text PRIMARY KEY,
    cents  bigint NOT NULL,
    fence  bigint NOT NULL  -- the token of whoever wrote it
);

CREATE FUNCTION refuse_older() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.fence < OLD.fence THEN
        RAISE EXCEPTION '%: a newer run has written it, this one (token %) has no say', OLD.key, NEW.fence;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER report_fence BEFORE UPDATE ON report FOR EACH ROW EXECUTE FUNCTION refuse_older();
