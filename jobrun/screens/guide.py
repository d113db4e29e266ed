"""The words of bare `jobrun` and of `jobrun help TOPIC`: 80 columns, 24 lines at the most."""

from __future__ import annotations

GUIDE = """\
jobrun: put it before a command: one copy at a time, every window once.
  jobrun run JOB -- COMMAND                                locked and recorded
  jobrun run JOB --every 1hour -- COMMAND {start} {end}    each hour once

look   status  history  windows  logs  show  plan  doctor
       explain  skips  events  failures  graph
act    rerun  retry  resolve  backfill  skip  pause  resume  stop  set
       unset  watermark  forget  export  import
more   jobrun COMMAND --help    jobrun help TOPIC: placeholders, exit-codes,
       skip-reasons, environment, crontab
"""

PLACEHOLDERS = """\
In COMMAND exactly {name} of a name below is replaced, as text; not after a $.
{{name}} becomes {name}; all other braces are the command's own.

with windows
  {start} {end}              2026-09-04T10:00:00+00:00, UTC; half-open
  {start_z} {end_z}          2026-09-04T10:00:00Z, fit for a URL
  {start_unix} {end_unix}    seconds since 1970
  {start_date} {last_date}   2026-09-04 in --tz: of its first and last instant
  {start_month} {start_hour} 2026-09 and 10, in --tz
  {windows}                  how many, 1 unless --catch-up merge
with windows or a key
  {key} {slug}               JOB:START or JOB:KEY; the same, fit for a file name
  {kind}                     new, retry, rerun, backfill
  {file}                     the path given to --key-file
always
  {job} {attempt} {run_id} {token}

Inside shell text use the environment: jobrun help environment
"""

EXIT_CODES = """\
the command's  it ran and failed (of the first window that failed)
    0  done, or skipped
    2  usage
   70  a bug, with a traceback
   73  a state folder or lock file can't be made, or is not safe
   74  the ledger is unreadable, full, corrupt, or from a newer version
   75  refused for now, nothing ran: a clock far behind, a ledger busy for 30 s
   76  ran but not recorded; the key is printed. Or ended: it lost its lock
   78  configuration, or a change of schedule that wants --accept-schedule
  124  timed out (--timeout)
  126  not executable
  127  not found
128+n  the command died by signal n, or jobrun was stopped by it

outcome= in the line tells jobrun's 124 from a command's own.
--busy-exit N is the code where nothing ran because it could not be now.
--ok-exit 0,3 counts 3 as success: it is recorded, jobrun exits 0.
status --check exits 1 where something is wrong; doctor where a check failed.
"""

SKIP_REASONS = """\
lock-held               another call of this job is at work
orphan-alive            jobrun was killed, its command is still alive
key-exists              this window or key is processed already
no-closed-window        nothing to do yet; next= says when (printed with -v)
not-closed              the window asked for is still open
not-latest              given up by --catch-up latest
too-old                 given up by --max-age
by-hand                 jobrun skip
retry-later             it failed a moment ago; --retry-delay
window-held             its run was lost, --on-lost hold: a person decides
paused                  the job is paused (jobrun resume)
clock-behind-watermark  the clock is a little behind what is done
upstream-pending        --after: the other job is not as far yet (up=)
upstream-failed         --after: it gave up there; only a person can go on
condition-false         --if is not true of what the other job left
store-down              the ledger's server is out of reach (--on-store-down)

jobrun skips JOB lists them, jobrun explain JOB WHEN tells them of one window.
"""

ENVIRONMENT = """\
jobrun reads
  JOBRUN_LEDGER      the ledger, where --ledger is not given
  JOBRUN_LOCK        the lock among machines, where --lock is not given; by
                     hand the last call's, and its password alone from here
  REDISCLI_AUTH      the password of a redis:// address that has none
  JOBRUN_HOME        the folder of the default ledger
  JOBRUN_QUIET       1: as --quiet
  JOBRUN_LOG_FORMAT  text or json

COMMAND gets (each set, or removed where the call has no value for it)
  JOBRUN_JOB  JOBRUN_KEY  JOBRUN_SLUG  JOBRUN_KIND  JOBRUN_ATTEMPT
  JOBRUN_WINDOW_START  JOBRUN_WINDOW_END  JOBRUN_WINDOWS  JOBRUN_PARTIAL
  JOBRUN_START_DATE  JOBRUN_LAST_DATE  JOBRUN_TZ
  JOBRUN_RUN_ID  JOBRUN_TOKEN  JOBRUN_LEDGER  JOBRUN_VALUES

  jobrun run dump --every 1day -- sh -ec 'pg_dump app > "$JOBRUN_SLUG.sql"'
"""

CRONTAB = """\
PATH=/usr/local/bin:/usr/bin:/bin     (jobrun doctor prints where jobrun is)
MAILTO=you@example.org
JOBRUN_QUIET=1

# a plain job: one copy at a time, recorded
17 3 * * * jobrun run certbot --timeout 10m -- certbot renew -q
# once a night, after an outage once (what anacron does)
*/15 * * * * jobrun run backup --every 1day --catch-up latest -- restic backup /
# each hour once, in order, what was missed is made up
*/5 * * * * jobrun run sales --every 1hour --lag 10m -- etl {start} {end}
# each day of a zone, not before 06:00 there
*/5 * * * * jobrun run day --every 1d --tz Asia/Tokyo --lag 6h -- x {start_date}

cron decides when it is called, the ledger what is left to do: call often.
Redirections belong inside: -- sh -ec '... > "$JOBRUN_SLUG.tmp"'
A % is a newline to cron: write it as \\%.
"""

TOPICS = {
    "placeholders": PLACEHOLDERS,
    "exit-codes": EXIT_CODES,
    "skip-reasons": SKIP_REASONS,
    "environment": ENVIRONMENT,
    "crontab": CRONTAB,
}
