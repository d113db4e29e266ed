-- The ledger. Instants are UTC text of one width, 2026-09-04T10:00:00+00:00, so that text order is
-- the order of time. Every name begins with jobrun_: the ledger may live in a database of the
-- user's own. Impossible rows are refused here, whoever writes them.

CREATE TABLE jobrun_meta (
    only_row     INTEGER PRIMARY KEY CHECK (only_row = 1),
    version      INTEGER NOT NULL,
    own_file     INTEGER NOT NULL CHECK (own_file IN (0, 1)),   -- jobrun made the file
    token_floor  INTEGER NOT NULL CHECK (token_floor >= 0)      -- the largest token of a forgotten job
);

INSERT INTO jobrun_meta (only_row, version, own_file, token_floor) VALUES (1, 0, 0, 0);

CREATE TABLE jobrun_job (
    name           TEXT NOT NULL PRIMARY KEY,
    schedule       TEXT,
    first          TEXT,
    watermark      TEXT CHECK (watermark GLOB '????-??-??T??:??:??+00:00'),
    next           TEXT CHECK (next GLOB '????-??-??T??:??:??+00:00'),
    token          INTEGER NOT NULL CHECK (token >= 0),
    paused_at      TEXT,
    paused_until   TEXT,
    paused_reason  TEXT,
    largest_now    TEXT NOT NULL CHECK (largest_now GLOB '????-??-??T??:??:??+00:00'),
    clock_jump_at  TEXT,
    told           TEXT,
    told_at        TEXT,
    first_seen     TEXT NOT NULL,
    last_seen      TEXT NOT NULL,
    spec           TEXT,
    CHECK (next > watermark),
    CHECK (next IS NULL OR watermark IS NOT NULL),
    CHECK (watermark IS NULL OR schedule IS NOT NULL),
    CHECK (paused_at IS NOT NULL OR (paused_until IS NULL AND paused_reason IS NULL)),
    CHECK ((told IS NULL) = (told_at IS NULL))
);

-- start and end are NULL for a unit that is no window (--key).
CREATE TABLE jobrun_window (
    job              TEXT NOT NULL REFERENCES jobrun_job (name),
    key              TEXT NOT NULL,
    start            TEXT CHECK (start GLOB '????-??-??T??:??:??+00:00'),
    "end"            TEXT CHECK ("end" GLOB '????-??-??T??:??:??+00:00'),
    state            TEXT NOT NULL CHECK (state IN
                         ('running', 'processed', 'failed', 'dead', 'skipped', 'held', 'void')),
    attempts         INTEGER NOT NULL CHECK (attempts >= 0),
    failures         INTEGER NOT NULL CHECK (failures BETWEEN 0 AND attempts),
    windows          INTEGER NOT NULL CHECK (windows >= 1),
    partial          INTEGER NOT NULL CHECK (partial IN (0, 1)),
    next_attempt_at  TEXT,
    token            INTEGER NOT NULL CHECK (token >= 0),
    reason           TEXT,
    changed_at       TEXT NOT NULL,
    PRIMARY KEY (job, key),
    CHECK ((start IS NULL) = ("end" IS NULL)),
    CHECK (start < "end"),
    CHECK (key = job || ':' || start),
    CHECK (substr(key, 1, length(job) + 1) = job || ':'),
    CHECK (state NOT IN ('running', 'failed', 'dead', 'held') OR attempts >= 1),
    CHECK (next_attempt_at IS NULL OR state = 'failed'),
    CHECK (start IS NOT NULL OR state <> 'void')
) WITHOUT ROWID;

CREATE UNIQUE INDEX jobrun_window_start ON jobrun_window (job, start) WHERE start IS NOT NULL;
CREATE INDEX jobrun_window_unfinished ON jobrun_window (job, start)
    WHERE state IN ('running', 'failed', 'held');
CREATE INDEX jobrun_window_void ON jobrun_window (job, start) WHERE state = 'void';
CREATE INDEX jobrun_window_unit ON jobrun_window (job, changed_at) WHERE start IS NULL;

CREATE TABLE jobrun_gap (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL REFERENCES jobrun_job (name),
    start    TEXT NOT NULL CHECK (start GLOB '????-??-??T??:??:??+00:00'),
    "end"    TEXT NOT NULL CHECK ("end" GLOB '????-??-??T??:??:??+00:00'),
    windows  INTEGER CHECK (windows >= 1),
    reason   TEXT NOT NULL,
    detail   TEXT,
    at       TEXT NOT NULL,
    void     INTEGER NOT NULL CHECK (void IN (0, 1)),
    CHECK (start < "end")
);

CREATE UNIQUE INDEX jobrun_gap_start ON jobrun_gap (job, start) WHERE void = 0;
CREATE INDEX jobrun_gap_job ON jobrun_gap (job, start);

-- AUTOINCREMENT: a run's number names its kept output, so it is never given twice.
CREATE TABLE jobrun_run (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    job           TEXT NOT NULL REFERENCES jobrun_job (name),
    key           TEXT,
    kind          TEXT CHECK (kind IN ('new', 'retry', 'rerun', 'backfill', 'lookback')),
    attempt       INTEGER NOT NULL CHECK (attempt >= 1),
    token         INTEGER NOT NULL CHECK (token >= 1),
    host          TEXT NOT NULL,
    pid           INTEGER,
    child_pid     INTEGER,
    birth         TEXT,
    user          TEXT NOT NULL,
    terminal      INTEGER NOT NULL CHECK (terminal IN (0, 1)),
    started       TEXT NOT NULL,
    ended         TEXT,
    took          REAL CHECK (took >= 0),
    outcome       TEXT CHECK (outcome IN ('succeeded', 'failed', 'timed-out', 'killed',
                      'not-started', 'interrupted', 'lost', 'fenced')),
    exit_code     INTEGER,
    signal        INTEGER,
    output_bytes  INTEGER CHECK (output_bytes >= 0),
    FOREIGN KEY (job, key) REFERENCES jobrun_window (job, key),
    -- Nobody saw the end of a run that is running, or is lost.
    CHECK ((ended IS NULL) = (outcome IS NULL OR outcome = 'lost')),
    CHECK (ended IS NOT NULL OR coalesce(took, exit_code, signal, output_bytes) IS NULL)
);

CREATE INDEX jobrun_run_job ON jobrun_run (job);            -- a job's runs by id
CREATE INDEX jobrun_run_key ON jobrun_run (job, key) WHERE key IS NOT NULL;
CREATE INDEX jobrun_run_open ON jobrun_run (job) WHERE outcome IS NULL;

CREATE TABLE jobrun_skip (
    id       INTEGER PRIMARY KEY,
    job      TEXT NOT NULL REFERENCES jobrun_job (name),
    key      TEXT,
    reason   TEXT NOT NULL,
    detail   TEXT,
    at       TEXT NOT NULL,
    times    INTEGER NOT NULL CHECK (times >= 1),
    last_at  TEXT NOT NULL
);

-- Repeats are folded into one row; NULLs are distinct in a UNIQUE index, '' is not.
CREATE UNIQUE INDEX jobrun_skip_same
    ON jobrun_skip (job, reason, coalesce(key, ''), coalesce(detail, ''));
CREATE INDEX jobrun_skip_job ON jobrun_skip (job, last_at);
CREATE INDEX jobrun_skip_last ON jobrun_skip (last_at);

CREATE TABLE jobrun_event (
    id      INTEGER PRIMARY KEY,
    at      TEXT NOT NULL,
    job     TEXT NOT NULL REFERENCES jobrun_job (name),
    key     TEXT,
    kind    TEXT NOT NULL,
    detail  TEXT
);

CREATE INDEX jobrun_event_job ON jobrun_event (job);

-- A command whose data lives in this database marks its key inside its own transaction, as the last
-- statement before COMMIT. ROLLBACK, not ABORT: a transaction left open by a failed mark would be
-- committed by the COMMIT of a careless script. The token is cast because text never equals a number.
CREATE VIEW jobrun_done (job, key, token) AS
    SELECT job, key, token FROM jobrun_window WHERE state = 'processed';

CREATE TRIGGER jobrun_done_mark INSTEAD OF INSERT ON jobrun_done
BEGIN
    UPDATE jobrun_window
       SET state = 'processed', reason = 'marked',
           changed_at = strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now')
     WHERE job = NEW.job AND key = NEW.key AND token = CAST(NEW.token AS INTEGER)
       AND state IN ('running', 'processed');
    SELECT RAISE(ROLLBACK, 'jobrun_done: no running window of this job, key and token; rolled back')
     WHERE changes() <> 1;
END;
