#!/bin/sh
# What rollup_once.py does, with the sqlite3 shell.
#
#   jobrun run turnover --every 1minute --lag 5s --ledger shop.db -- ./rollup_once.sh shop.db
#
# -bail matters: without it the shell goes on after an error, to COMMIT. The names between quotes are
# safe there: a job's name and a window's key hold no quote.
set -eu

sqlite3 -bail "$1" <<SQL
.timeout 30000
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS summary (start TEXT, end TEXT, orders INTEGER, cents INTEGER);
CREATE TABLE IF NOT EXISTS turnover (product TEXT PRIMARY KEY, cents INTEGER NOT NULL);
INSERT INTO summary (start, end, orders, cents)
    SELECT '$JOBRUN_WINDOW_START', '$JOBRUN_WINDOW_END', count(*), coalesce(sum(cents), 0)
    FROM orders WHERE at >= '$JOBRUN_WINDOW_START' AND at < '$JOBRUN_WINDOW_END';
INSERT INTO turnover (product, cents)
    SELECT product, sum(cents) FROM orders
    WHERE at >= '$JOBRUN_WINDOW_START' AND at < '$JOBRUN_WINDOW_END' GROUP BY product
    ON CONFLICT (product) DO UPDATE SET cents = cents + excluded.cents;
INSERT INTO jobrun_done (job, key, token) VALUES ('$JOBRUN_JOB', '$JOBRUN_KEY', '$JOBRUN_TOKEN');
COMMIT;
SQL
