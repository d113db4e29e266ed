-- The ledger in PostgreSQL: the same tables as in schema/sqlite, each in the types that it has here.
-- Instants are whole seconds. Text is compared as bytes: two names are one only if all of it is the
-- same, and the order of keys is that of their starts. Impossible rows are refused here, whoever
-- writes them. Nothing names a schema: the search path is set to it, for the time of a migration.

CREATE TABLE jobrun_meta (
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version      integer NOT NULL,
    token_floor  bigint NOT NULL CHECK (token_floor >= 0)      -- the largest token of a forgotten job
);

INSERT INTO jobrun_meta (version, token_floor) VALUES (0, 0);

CREATE TABLE jobrun_job (
    name           text COLLATE "C" PRIMARY KEY,
    schedule       text,
    first          text,
    watermark      timestamptz,
    next           timestamptz,
    token          bigint NOT NULL CHECK (token >= 0),
    paused_at      timestamptz,
    paused_until   timestamptz,
    paused_reason  text,
    largest_now    timestamptz NOT NULL,
    clock_jump_at  timestamptz,
    told           text,
    told_at        timestamptz,
    first_seen     timestamptz NOT NULL,
    last_seen      timestamptz NOT NULL,
    spec           text,
    paused_by      text,
    failing        integer NOT NULL DEFAULT 0 CHECK (failing >= 0),
    failing_since  timestamptz,
    failing_row    bigint NOT NULL DEFAULT 0,   -- which row of failures it is: one more with each end
    trouble_since  timestamptz,      -- events have told that it fails, none yet that it recovered
    overrides      text,             -- {"--timeout": {"value": "2h", "by": "anna", "at": "...", ...}}
    CHECK (next > watermark),
    CHECK (next IS NULL OR watermark IS NOT NULL),
    CHECK (watermark IS NULL OR schedule IS NOT NULL),
    CHECK (paused_at IS NOT NULL OR (paused_until IS NULL AND paused_reason IS NULL)),
    CHECK ((told IS NULL) = (told_at IS NULL))
);

-- start and end are NULL for a unit that is no window (--key).
CREATE TABLE jobrun_window (
    job              text COLLATE "C" NOT NULL REFERENCES jobrun_job (name),
    key              text COLLATE "C" NOT NULL,
    start            timestamptz,
    "end"            timestamptz,
    state            text NOT NULL CHECK (state IN
                         ('running', 'processed', 'failed', 'dead', 'skipped', 'held', 'void')),
    attempts         bigint NOT NULL CHECK (attempts >= 0),
    failures         bigint NOT NULL CHECK (failures BETWEEN 0 AND attempts),
    windows          bigint NOT NULL CHECK (windows >= 1),
    partial          boolean NOT NULL,
    next_attempt_at  timestamptz,
    token            bigint NOT NULL CHECK (token >= 0),
    reason           text,
    changed_at       timestamptz NOT NULL,
    counted_in       bigint,         -- the failing_row that this failed window counts in
    PRIMARY KEY (job, key),
    CHECK ((start IS NULL) = ("end" IS NULL)),
    CHECK (start < "end"),
    CHECK (key = job || to_char(start AT TIME ZONE 'UTC', '":"YYYY-MM-DD"T"HH24:MI:SS"+00:00"')),
    CHECK (starts_with(key, job || ':')),
    CHECK (state NOT IN ('running', 'failed', 'dead', 'held') OR attempts >= 1),
    CHECK (next_attempt_at IS NULL OR state = 'failed'),
    CHECK (start IS NOT NULL OR state <> 'void')
);

CREATE UNIQUE INDEX jobrun_window_start ON jobrun_window (job, start);
CREATE INDEX jobrun_window_unfinished ON jobrun_window (job, start)
    WHERE state IN ('running', 'failed', 'held');
CREATE INDEX jobrun_window_dead ON jobrun_window (job, start) WHERE state = 'dead';
CREATE INDEX jobrun_window_void ON jobrun_window (job, start) WHERE state = 'void';
CREATE INDEX jobrun_window_unit ON jobrun_window (job, changed_at) WHERE start IS NULL;

CREATE TABLE jobrun_gap (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job      text COLLATE "C" NOT NULL REFERENCES jobrun_job (name),
    start    timestamptz NOT NULL,
    "end"    timestamptz NOT NULL,
    windows  bigint CHECK (windows >= 1),
    reason   text NOT NULL,
    detail   text,
    at       timestamptz NOT NULL,
    void     boolean NOT NULL,
    CHECK (start < "end")
);

CREATE UNIQUE INDEX jobrun_gap_start ON jobrun_gap (job, start) WHERE NOT void;
CREATE INDEX jobrun_gap_job ON jobrun_gap (job, start);

-- A run's number names its kept output; it is never given twice.
CREATE TABLE jobrun_run (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job           text COLLATE "C" NOT NULL REFERENCES jobrun_job (name),
    key           text COLLATE "C",
    kind          text CHECK (kind IN ('new', 'retry', 'rerun', 'backfill', 'lookback')),
    attempt       bigint NOT NULL CHECK (attempt >= 1),
    token         bigint NOT NULL CHECK (token >= 1),
    host          text NOT NULL,
    pid           bigint,
    child_pid     bigint,
    birth         text,
    "user"        text NOT NULL,
    terminal      boolean NOT NULL,
    started       timestamptz NOT NULL,
    ended         timestamptz,
    took          double precision CHECK (took >= 0),
    outcome       text CHECK (outcome IN ('succeeded', 'failed', 'timed-out', 'killed',
                      'not-started', 'interrupted', 'lost', 'fenced')),
    exit_code     bigint,
    signal        integer,
    output_bytes  bigint CHECK (output_bytes >= 0),
    why           text,
    by_hand       boolean NOT NULL DEFAULT false,
    slot          integer CHECK (slot >= 1),
    FOREIGN KEY (job, key) REFERENCES jobrun_window (job, key),
    -- Nobody saw the end of a run that is running, or is lost.
    CHECK ((ended IS NULL) = (outcome IS NULL OR outcome = 'lost')),
    CHECK (ended IS NOT NULL OR coalesce(took, exit_code, signal, output_bytes) IS NULL)
);

CREATE INDEX jobrun_run_job ON jobrun_run (job, id);
CREATE INDEX jobrun_run_key ON jobrun_run (job, key, id) WHERE key IS NOT NULL;
CREATE INDEX jobrun_run_host ON jobrun_run (host, id);
CREATE INDEX jobrun_run_open ON jobrun_run (job) WHERE outcome IS NULL;

CREATE TABLE jobrun_skip (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job      text COLLATE "C" NOT NULL REFERENCES jobrun_job (name),
    key      text COLLATE "C",
    reason   text NOT NULL,
    detail   text,
    at       timestamptz NOT NULL,
    times    bigint NOT NULL CHECK (times >= 1),
    last_at  timestamptz NOT NULL
);

-- Repeats are folded into one row; NULLs are distinct in a UNIQUE index, '' is not.
CREATE UNIQUE INDEX jobrun_skip_same
    ON jobrun_skip (job, reason, coalesce(key, ''), coalesce(detail, ''));
CREATE INDEX jobrun_skip_job ON jobrun_skip (job, last_at);
CREATE INDEX jobrun_skip_last ON jobrun_skip (last_at);

CREATE TABLE jobrun_event (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    job     text COLLATE "C" NOT NULL REFERENCES jobrun_job (name),
    key     text COLLATE "C",
    kind    text NOT NULL,
    detail  text
);

CREATE INDEX jobrun_event_job ON jobrun_event (job, id);

-- Who has a job's lock where no session of the server's can hold it (--lock lease). `name` is the
-- job's, or with :1, :2, ... that of a slot; `holder` is made for each time that it is taken.
CREATE TABLE jobrun_lock (
    name     text COLLATE "C" PRIMARY KEY,
    holder   text NOT NULL,
    host     text NOT NULL,
    taken    timestamptz NOT NULL,
    expires  timestamptz NOT NULL
);

-- What a command left in $JOBRUN_VALUES, for the windows of other jobs.
CREATE TABLE jobrun_value (
    job    text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text NOT NULL,
    PRIMARY KEY (job, key, name),
    FOREIGN KEY (job, key) REFERENCES jobrun_window (job, key)
);

-- Who calls. `skew` is how far the host's clock is ahead of the server's, in milliseconds.
CREATE TABLE jobrun_host (
    host        text COLLATE "C" PRIMARY KEY,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    version     text,
    skew        bigint
);

-- A command whose data lives in this database marks its key inside its own transaction, as the last
-- statement before COMMIT:  SELECT jobrun_done('sales', 'sales:2026-09-04T10:00:00+00:00', 8);
-- Where another run holds the window by now, the error leaves that transaction nothing to commit.
-- From here to COMMIT nobody else writes of the job, as it is in SQLite: whoever would run the window
-- again waits, and then sees that it is done. So a transaction that idles here is ended, as ours are.
-- Of a name space: SELECT staging.jobrun_done(...). It finds its table whatever the caller's search
-- path is, which stays as it is.
CREATE FUNCTION jobrun_done(job text, key text, token bigint) RETURNS void LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1785684594,  -- as for every transaction of a job of ours
        hashtext(current_schema() || '/' || jobrun_done.job));
    IF current_setting('idle_in_transaction_session_timeout')::interval
           NOT BETWEEN interval '1 ms' AND interval '15 s' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '15s', true);
    END IF;
    UPDATE jobrun_window AS w
       SET state = 'processed', reason = 'marked', next_attempt_at = NULL,
           changed_at = date_trunc('second', clock_timestamp())
     WHERE w.job = jobrun_done.job AND w.key = jobrun_done.key AND w.token = jobrun_done.token
       AND w.state IN ('running', 'processed');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'jobrun_done: no running window of this job, key and token'
              USING ERRCODE = 'JR001', HINT = 'another run of it has begun: exit, it does the work';
    END IF;
END
$$;
