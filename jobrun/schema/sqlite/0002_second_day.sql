-- What a person needs from the second day on: pauses that say whose they are, failures that are
-- counted by window, options that are set on record, and values that windows hand on.

ALTER TABLE jobrun_job ADD COLUMN paused_by TEXT;

-- How many windows failed one after another since the last one that was processed, since when.
ALTER TABLE jobrun_job ADD COLUMN failing INTEGER NOT NULL DEFAULT 0 CHECK (failing >= 0);
ALTER TABLE jobrun_job ADD COLUMN failing_since TEXT;

-- Which row of such failures it is: one more with each that ends. A window that has failed says in
-- which it was counted, so that it counts once, and an end needs no look at the windows.
ALTER TABLE jobrun_job ADD COLUMN failing_row INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobrun_window ADD COLUMN counted_in INTEGER;

-- Since when events have told that the job fails: set by `failed`, cleared by `recovered`.
ALTER TABLE jobrun_job ADD COLUMN trouble_since TEXT;

-- What is dead is finished, but listed until a person looks.
CREATE INDEX jobrun_window_dead ON jobrun_window (job, start) WHERE state = 'dead';

-- JSON: {"--timeout": {"value": "2h", "by": "anna", "at": "...", "reason": "..."}}
ALTER TABLE jobrun_job ADD COLUMN overrides TEXT;

-- Why a run could not be started: there is no output that tells.
ALTER TABLE jobrun_run ADD COLUMN why TEXT;

-- A person asked for it by its window, so that it is nothing that the job pauses itself for.
ALTER TABLE jobrun_run ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0 CHECK (by_hand IN (0, 1));

-- A run of --overlap allow: which lock beside the job's its call holds (overlap.py).
ALTER TABLE jobrun_run ADD COLUMN slot INTEGER CHECK (slot >= 1);

-- What a command left in $JOBRUN_VALUES, for the windows of other jobs.
CREATE TABLE jobrun_value (
    job    TEXT NOT NULL,
    key    TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (job, key, name),
    FOREIGN KEY (job, key) REFERENCES jobrun_window (job, key)
) WITHOUT ROWID;
