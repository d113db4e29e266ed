"""Which hosts have called, written where a call writes anyway.

Not by each of them: all calls of a host write the same row, and on a server each would wait until
the one before it is committed. So it says when a host was seen last to the minute. In a cluster
each call may be a host of its own: what has not called for a while is forgotten.
"""

from __future__ import annotations

from jobrun import __version__
from jobrun.instants import DAY, MINUTE, iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database

KEPT = 90 * DAY

_NOTE = """
INSERT INTO jobrun_host (host, first_seen, last_seen, version, skew)
SELECT :host, :now, :now, :version, :skew
 WHERE NOT EXISTS (SELECT 1 FROM jobrun_host WHERE host = :host AND version = :version
                      AND last_seen > :lately AND last_seen <= :now)
    ON CONFLICT (host) DO UPDATE
   SET last_seen = CASE WHEN jobrun_host.last_seen < :now THEN :now ELSE jobrun_host.last_seen END,
       version = :version, skew = coalesce(:skew, jobrun_host.skew)
"""

# Only where one more comes.
_FORGET_OLD = """
DELETE FROM jobrun_host
 WHERE NOT EXISTS (SELECT 1 FROM jobrun_host WHERE host = :host)
   AND last_seen < :old
   AND host NOT IN (SELECT host FROM jobrun_run WHERE outcome IS NULL)
"""

_FORGET = """
DELETE FROM jobrun_host
 WHERE host = :host
   AND NOT EXISTS (SELECT 1 FROM jobrun_run WHERE outcome IS NULL AND host = :host)
"""


def note_host(
    database: Database, host: str, now: int, skew: int | None, every: int = MINUTE
) -> None:
    """Part of a transaction, its last statement: the row stays locked until the end of it.

    `skew`: milliseconds that the host's clock is ahead of the server's, None: not asked. Nothing is
    written where the host has been seen within `every` seconds.
    """
    seen = {"host": host, "now": iso(now), "lately": iso(max(0, now - every))}
    database.put(_NOTE, {**seen, "version": __version__, "skew": skew})


def forget_old(database: Database, host: str, now: int) -> None:
    """Part of a transaction in which `host` will be noted."""
    database.put(_FORGET_OLD, {"host": host, "old": iso(max(0, now - KEPT))})


def forget_host(database: Database, host: str) -> bool:
    """False where it has a run that has not ended, or is not there."""
    return database.change(_FORGET, {"host": host}) == 1
