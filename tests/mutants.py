"""Ways to break jobrun on purpose: each puts something wrong in place, in this process alone."""

from __future__ import annotations

from typing import Any

from jobrun import attempts, ledger_sql, ledger_sqlite, process, sqlite_file, sqlite_schema
from jobrun.rows import Claimed
from jobrun.sqlite_database import Transaction

# A later version of the schema as it may come one day.
_SECOND = """
ALTER TABLE jobrun_job ADD COLUMN owner TEXT;

CREATE TABLE jobrun_event_new (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, job TEXT NOT NULL REFERENCES jobrun_job (name),
    key TEXT, kind TEXT NOT NULL, detail TEXT, told TEXT
);
INSERT INTO jobrun_event_new SELECT id, at, job, key, kind, detail, NULL FROM jobrun_event;
DROP TABLE jobrun_event;
ALTER TABLE jobrun_event_new RENAME TO jobrun_event;
"""


def second_schema() -> None:
    """Nothing wrong with this one: a program that is a migration ahead of the ledger."""
    scripts = [*sqlite_schema.scripts(), _SECOND]
    sqlite_schema.scripts = lambda: scripts
    sqlite_file.VERSION = len(scripts)


def no_token_check() -> None:
    """Whoever planned may write and claim, whoever has been since."""
    checked = "AND token = :token"
    assert checked in ledger_sql._TAKE_TOKEN
    ledger_sql._TAKE_TOKEN = ledger_sql._TAKE_TOKEN.replace(checked, "")
    claim = ledger_sqlite.SqliteLedger._claim

    def claimed(
        self: Any, job: str, token: int, wanted: Any, but_for: str | None = None
    ) -> Claimed | None:
        return claim(self, job, token, wanted)

    ledger_sqlite.SqliteLedger._claim = claimed  # type: ignore[method-assign,assignment]


def go_before_claim() -> None:
    """The command runs before a row says so; what it is told is made up."""
    start = attempts.Attempts._start

    def started(self: attempts.Attempts) -> process.Child:
        child = start(self)
        call = self.situation.call
        # With the ledger: run 1 of another one is somebody else's, and would be ended too.
        marker = {"JOBRUN_RUN_ID": "1", "JOBRUN_LEDGER": call.ledger}
        environ = {"PATH": call.environ["PATH"], "JOBRUN_ATTEMPT": "1", **marker}
        environ |= {"JOBRUN_KEY": "a:2026-09-04T11:00:00+00:00"}
        child.go(self.situation.job.command, environ, None)
        let_go: Any = child._let_go
        let_go(1.0, marker)
        child._let_go = lambda *arguments: None  # type: ignore[method-assign]
        return child

    attempts.Attempts._start = started  # type: ignore[method-assign]


def nobody_is_looked_for() -> None:
    """Whoever has a run on record that has not ended is taken for dead, unseen."""
    process.wrapper_alive = lambda run: False
    process.command_alive = lambda run, marker: ()


def each_statement_by_itself() -> None:
    """No transaction around what belongs together."""

    def enter(self: Transaction) -> Transaction:
        return self

    Transaction.__enter__ = enter  # type: ignore[method-assign]


def lost_runs_stay() -> None:
    """Runs that never ended are not closed."""
    losses = ledger_sql._Losses(None, None, ())
    ledger_sqlite.SqliteLedger._lose_runs = lambda *_: losses  # type: ignore[method-assign]


def marked_at_the_claim() -> None:
    """A window is taken for processed as soon as it is claimed."""
    claim = ledger_sqlite.SqliteLedger._claim

    def claimed(self: Any, job: str, token: int, wanted: Any, **more: Any) -> Claimed | None:
        made = claim(self, job, token, wanted, **more)
        if made is not None:
            mark = "UPDATE jobrun_window SET state = 'processed' WHERE job = ? AND key = ?"
            self._database.change(mark, (job, wanted.key))
        return made

    ledger_sqlite.SqliteLedger._claim = claimed  # type: ignore[method-assign,assignment]
