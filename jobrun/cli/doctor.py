"""`jobrun doctor`"""

from __future__ import annotations

import typer

from jobrun.call import host_name
from jobrun.checks import FAIL, Check, Patient, examine
from jobrun.cli.look import JsonOption, LedgerOption, Look
from jobrun.errors import JobrunError
from jobrun.screens.doctor import doctor_screen


def doctor(ctx: typer.Context, ledger: LedgerOption = None, as_json: JsonOption = False) -> int:
    """Is the ledger whole, does the lock hold, will cron find the program? Exit 1 if not."""
    look = Look(ctx, ledger, as_json)
    checks = _examine(look)
    look.show(doctor_screen(look.path, checks, look.now))
    return int(any(check.grade == FAIL for check in checks))


def _examine(look: Look) -> list[Check]:
    try:
        with look.ledger() as rows:
            return list(
                examine(Patient(look.where, rows, None, look.environ, look.now, host_name()))
            )
    except JobrunError as error:
        return list(examine(Patient(look.where, None, error, look.environ, look.now, host_name())))
