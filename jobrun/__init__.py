"""jobrun: one copy at a time, every window once, what was missed is made up.

Theory of operation
===================

cron decides when jobrun is called; the ledger decides what is left to do. A call computes the
closed windows from the job's watermark, runs the command once for each, and records what came of
it. So it may come late, twice, by hand, or not at all for a week.

Two things keep work from being done twice. The *lock* (lock_file.py) keeps two copies apart at the
same moment; it is courtesy, and it may lie. The *ledger* (ledger.py) is the truth: one row a
key, and a *token* that grows with each acquisition of the lock, and with each further try in it,
and that every later write must show. Who shows an old one has been replaced, and is refused.

The way of a call (`__main__.py`, `run.py`, and with the lock `turn.py`):

    options.py, job.py      what is asked, checked before anything is touched
    idle.py                 nothing to do: one read, one row, out; most calls end here
    lock_file.py            busy: withdraw at once, with the holder and since when
    policy.py               pure: options, rows and an instant in, windows or a skip out
    process.py              the command is started *blocked*, under a guardian
    ledger_sql.py           it is claimed: its window, its pid, our token, in one transaction
    vigil.py                it is let go, watched, stopped with all it started
    ledger_sql.py           its end, the watermark and the next claim, in one transaction

At every point of this something may be killed. The *guardian* (guardian.py) is the command's
parent and holds a copy of the lock: if we die it ends the command and everything that belongs to
it, and only then the lock is free. If both die, the row still says which process to look for. What
was running when nobody was left is *lost*, and runs again: at least once. A command whose data
lies in the ledger's own database can make it exactly once, by `done` in its own transaction
(mark.py).

Calls that ask for it run beside each other, each with windows of its own (overlap.py).

Where several machines share a ledger on a PostgreSQL server (ledgers.py, ledger_postgres.py; all
that is written is SQL which both databases read), a call takes two locks: this machine's, and with
it that of all of them (machines.py), which a connection holds and so can be lost. While a command
runs it is kept without a thread and without waiting, by the one loop (keeping.py,
postgres_keeper.py); the guardian holds its socket and knows until when the command may run
(hold.py). How a run ended is on this machine's disk before the server is told (outbox.py).
"""

__version__ = "1.0.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.mark import done

__all__ = ["__version__", "done"]


def __getattr__(name: str) -> object:
    # `import jobrun` stands in front of every call; `done` is for commands alone.
    if name == "done":
        from jobrun.mark import done

        return done
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
