"""A job's lock among machines where no session of the server's is ours alone: a row that expires.

For ledgers behind a connection pooler. Whoever has it writes anew until when, with each question of
its keeper; who is not heard of for `ttl` seconds, by the server's clock, has lost it for good. So
it outlives its connections and a restart of the server, and a machine that crashes keeps it as
long.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property

from jobrun.boottime import boottime
from jobrun.errors import JobrunError
from jobrun.lock_postgres import RUN, SESSIONS, TAKE_AGAIN, ServerLock, taken_over
from jobrun.postgres_keeper import Rows, Taken

# Whoever waits for it only looks: nothing is written as long as another has it.
_TAKE = """
INSERT INTO jobrun_lock AS l (name, holder, host, taken, expires)
SELECT :name, :holder, :host, clock_timestamp(),
       clock_timestamp() + CAST(:ttl AS double precision) * interval '1 second'
 WHERE NOT EXISTS (SELECT 1 FROM jobrun_lock WHERE name = :name AND expires > clock_timestamp())
    ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, host = excluded.host, taken = excluded.taken,
       expires = excluded.expires
 WHERE l.expires <= clock_timestamp()
RETURNING 1
"""
_RENEW = """
UPDATE jobrun_lock SET expires = clock_timestamp() + :ttl * interval '1 second'
 WHERE name = :name AND holder = :holder AND expires > clock_timestamp()
RETURNING 1
"""
_DEMAND = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
{renew};
{run};
COMMIT
"""
_GIVE_BACK = "DELETE FROM jobrun_lock WHERE name = ? AND holder = ?"


class LeaseLock(ServerLock):
    @cached_property
    def _holder(self) -> str:
        return os.urandom(8).hex()

    def is_held(self) -> bool:
        if not self._is_taken:
            return False
        if self.keeper.lost is None and self.keeper.take_again(TAKE_AGAIN):
            return True
        self._let_go()
        return False

    def is_settled(self) -> bool:
        """A restart of the server takes it from nobody."""
        return True

    def release(self) -> None:
        if self._is_taken:
            self._let_go()
            with suppress(JobrunError):  # then it expires
                self._database.change(_GIVE_BACK, (self._name, self._holder))

    def _let_go(self) -> None:
        self._is_taken = False
        self.keeper.let_go()

    def _try(self) -> bool:
        asked = boottime()
        values = {"name": self._name, "holder": self._holder, "host": self._who, "ttl": self._ttl}
        if not self._database.rows(_TAKE, values):
            return False
        self._is_taken = True
        self._database.pause = self._ttl
        if self._holders(SESSIONS):
            self.release()
            return False
        self.keeper.hold(asked)
        return True

    # -- for its keeper ---------------------------------------------------------------------------

    def question(self) -> bytes:
        return self._database.statement(_RENEW, **self._renewed)

    def other_word(self) -> float:
        return 0.0

    def is_ours(self, answer: Rows) -> bool:
        return bool(answer)

    def demand(self, backend_pid: int, run_id: int) -> bytes:
        text = _DEMAND.format(renew=_RENEW, run=RUN.format(run=run_id))
        return self._database.statement(text, **self._renewed)

    def taken(self, answer: Rows) -> bool:
        """The row of the lease, where it is ours, has one column; that of the run has two."""
        for outcome, host in (row for row in answer if len(row) == 2):
            if outcome == "lost":
                raise taken_over(host)
        if not any(len(row) == 1 for row in answer):
            raise Taken("the lease is over")
        return True

    @property
    def _renewed(self) -> dict[str, object]:
        return {"name": self._name, "holder": self._holder, "ttl": self._ttl}
