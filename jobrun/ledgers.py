"""Which kind of ledger is opened: the one place that chooses. What is not chosen is not loaded."""

from __future__ import annotations

from jobrun import places
from jobrun.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrun.ledger import Ledger
    from jobrun.places import Where
    from jobrun.rows import Caller


def open_ledger(
    where: Where,
    caller: Caller | None = None,
    create: bool = False,
    network: bool | None = None,
    to_read: bool = False,
    clock: Callable[[], float] | None = None,
) -> Ledger:
    """See ledger_sqlite.open_ledger and ledger_postgres.open_ledger, with their errors."""
    if where.is_file:
        from jobrun import ledger_sqlite

        space = where.namespace
        return ledger_sqlite.open_ledger(where.address, caller, create, network, to_read, space)
    _check_psycopg(where)
    from jobrun import ledger_postgres

    return ledger_postgres.open_ledger(where.address, caller, create, where.namespace, clock)


def try_to_make(where: Where) -> None:
    """Whether a first call could make a ledger on a server, with the errors that it would raise."""
    if not where.is_file:
        from jobrun import ledger_postgres

        ledger_postgres.try_to_make(where.address, where.namespace)


def _check_psycopg(where: Where) -> None:
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ledger {where.name}: {error.name} is not installed", "pip install 'jobrun[postgres]'"
        ) from error
    except ImportError as error:  # psycopg alone is not enough
        said = str(error).replace("\n", " ")
        raise ConfigError(
            f"ledger {where.name}: psycopg finds no libpq ({said})", "pip install 'psycopg[binary]'"
        ) from error


def is_there(where: Where) -> bool:
    """Whether there is anything to open; a server is taken to be there until it is asked."""
    return not where.is_file or places.may_be_there(where.address)
