-- Several machines: who calls. `skew` is how far the host's clock is ahead of the clock of the
-- ledger's server, in milliseconds: NULL in a file, which has none.

CREATE TABLE jobrun_host (
    host        TEXT NOT NULL PRIMARY KEY,
    first_seen  TEXT NOT NULL,
    last_seen   TEXT NOT NULL,
    version     TEXT,                   -- of jobrun there; NULL: an older one, which did not say so
    skew        INTEGER
) WITHOUT ROWID;

-- The name space that the file is of, whatever path it is named by: locks on a server have it.
ALTER TABLE jobrun_meta ADD COLUMN namespace TEXT;

INSERT INTO jobrun_host (host, first_seen, last_seen)
SELECT host, min(started), max(started) FROM jobrun_run GROUP BY host;
