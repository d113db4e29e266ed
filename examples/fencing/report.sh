#!/bin/sh
# What report.py does, with psql and the table of table.sql: the trigger refuses what is older.
#
#   jobrun run report --every 1day --ledger postgresql://jobrun@db1/jobs -- ./report.sh orders/{start_date}.txt
set -eu

cents=$(awk '{ sum += $1 } END { printf "%d", sum }' "$1")
psql -q -v ON_ERROR_STOP=1 -v key="$JOBRUN_KEY" -v token="$JOBRUN_TOKEN" -v cents="$cents" service=reports <<'SQL'
INSERT INTO report (key, cents, fence) VALUES (:'key', :'cents', :'token')
    ON CONFLICT (key) DO UPDATE SET cents = excluded.cents, fence = excluded.fence;
SQL
