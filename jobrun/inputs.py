"""What windows get from their upstreams: `--input`, and by `--if` whether they run at all. Pure.

A window whose input is missing is not left out: its run fails before it is started, so that it is
on record, told, and tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobrun import options, rows
from jobrun.plans import Note, Plan, Unit
from jobrun.rows import Skipped
from jobrun.upstream import NoValue, Upstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job

Upstreams = Mapping[str, Upstream]  # by name


def hand_over(plan: Plan, job: Job, upstreams: Iterable[Upstream]) -> Plan:
    """The plan with the inputs of each unit, and without those whose condition is not true."""
    by_name = {upstream.name: upstream for upstream in upstreams}
    units: list[Unit] = []
    left_out: list[Unit] = []
    for unit in plan.units:
        given, runs = _judge(_with_inputs(unit, job, by_name), job.condition)
        (units if runs else left_out).append(given)
    if not any(unit.kind == rows.NEW for unit in units):  # a look back goes with a new one
        units = [unit for unit in units if unit.kind != rows.LOOKBACK]
    return plan._replace(
        units=tuple(units),
        opening=plan.opening._replace(skipped=tuple(map(_skipped, left_out))),
        notes=(*plan.notes, *(_told(unit, job) for unit in left_out)),
    )


def _with_inputs(unit: Unit, job: Job, upstreams: Upstreams) -> Unit:
    start, end = _bounds(unit)
    found = []
    for name, up, key in job.inputs:
        try:
            found.append((name, upstreams[up].value(key, start, end)))
        except NoValue as error:
            show, listed = options.typed("show", "KEY"), options.typed("windows", up)
            hint = f"{show} tells what a window has left: {listed}"
            return unit._replace(refusal=(f"--input {name}={up}.{key}: {error}", hint))
    return unit._replace(inputs=tuple(found))


def _judge(unit: Unit, expression: str | None) -> tuple[Unit, bool]:
    """Whether it is to run; also where nobody can tell: then its run says why."""
    if expression is None or unit.refusal is not None:
        return unit, True
    from jobrun import condition

    try:
        return unit, condition.holds(expression, dict(unit.inputs))
    except condition.CantTell as error:
        return unit._replace(refusal=(str(error), None)), True


def _bounds(unit: Unit) -> tuple[int, int]:
    assert unit.start is not None  # --input and --if go with windows only
    assert unit.end is not None
    return unit.start, unit.end


def _skipped(unit: Unit) -> Skipped:
    start, end = _bounds(unit)
    reason = rows.CONDITION_FALSE
    return Skipped(unit.key or "", start, end, reason, unit.partial, unit.windows)


def _told(unit: Unit, job: Job) -> Note:
    fields = {"job": job.name, "reason": rows.CONDITION_FALSE, "window": _bounds(unit)}
    return "SKIPPED", {**fields, "key": unit.key, "if": job.condition}, None
