"""`show --origin`: each option of a job as its next call has it, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jobrun import options, overrides
from jobrun.errors import UsageError
from jobrun.instants import iso
from jobrun.lastcall import LastCall
from jobrun.options import BY_NAME, Option
from jobrun.overrides import Override
from jobrun.rows import JobRow
from jobrun.screen import DIM, STILL, Cell, Screen, Table, head, line, moment

SET, LINE, DEFAULT = "set", "line", "default"


class Origin(NamedTuple):
    option: str
    value: str  # as typed; a flag is on or off
    source: str  # one of the three
    setting: Override | None = None  # who, when, why
    line: str | None = None  # what it wins over
    misfit: str | None = None  # why what is set does not fit: it is not used


def origins(
    mode: str,
    line: LastCall,
    set_on_record: dict[str, Override],
    misfits: Mapping[str, UsageError],
) -> Iterator[Origin]:
    """In the order of `run --help --all`; an option that has no value anywhere is left out. Last
    comes what this program does not know.

    `line` is the last call as it was typed.
    """
    for option in BY_NAME.values():
        if mode not in option.modes or not option.kept:
            continue
        name, typed = option.long, line.options.get(option.long)
        said = None if typed is None else _value(option, typed)
        setting = set_on_record.get(name)
        if setting is not None and name in misfits:
            value = said or option.default or overrides.OFF
            source = DEFAULT if said is None else LINE
            yield Origin(name, value, source, setting, said, misfits[name].message)
        elif setting is not None:
            yield Origin(name, _value(option, setting.value), SET, setting, said)
        elif said is not None:
            yield Origin(name, said, LINE)
        elif option.default:
            yield Origin(name, option.default, DEFAULT)
    for name, setting in set_on_record.items():
        if name not in BY_NAME:  # a newer jobrun's
            problem = misfits[name].message
            yield Origin(name, overrides.OFF, DEFAULT, setting, None, problem)


def _value(option: Option, text: str | None) -> str:
    if text is None:
        return overrides.OFF
    return overrides.ON if option.kind == options.FLAG else text


def origin_screen(ledger: str, job: JobRow, mode: str, line_: LastCall, now: int) -> Screen:
    known = overrides.read(job.overrides)
    misfits = overrides.fit(job.name, mode, line_.options, known).misfits
    found = list(dict.fromkeys(origins(mode, line_, known, misfits)))
    rows = tuple(
        (Cell(o.option), Cell(o.value), Cell(_from(o, line_, now), style=_STYLES[o.source]))
        for o in found
    )
    parts = (head(ledger, now), line(job.name), Table(("OPTION", "VALUE", "FROM"), rows))
    shown = [_data(origin) for origin in found]
    return Screen(parts, {"now": iso(now), "job": job.name, "options": shown})


_STYLES = {SET: STILL, LINE: "", DEFAULT: DIM}


def _from(origin: Origin, line_: LastCall, now: int) -> str:
    setting = origin.setting
    if setting is not None and origin.misfit is None:
        instead = f" (the last call says {origin.line})" if origin.line is not None else ""
        return f"{_set_by(setting, now)}{instead}"
    where = DEFAULT
    if origin.source == LINE:
        when = "" if line_.at is None else f", {moment(line_.at, now)}"
        how = "a terminal" if line_.terminal else "the crontab"
        where = f"{how} ({line_.caller or 'unknown'}{when})"
    if setting is None:
        return where
    what = overrides.shown(origin.option, setting.value)
    return f"{where}; {what}, {_set_by(setting, now)}, does not fit: {origin.misfit}"


def _set_by(setting: Override, now: int) -> str:
    why = f": {setting.reason}" if setting.reason else ""
    return f"set by {setting.by}, {moment(setting.at, now)}{why}"


def _data(origin: Origin) -> dict[str, object]:
    data: dict[str, object] = {"option": origin.option, "value": origin.value}
    data["from"] = origin.source
    if origin.setting is not None:
        setting = origin.setting
        data |= {"by": setting.by, "at": iso(setting.at), "reason": setting.reason}
        data["line"] = origin.line
    if origin.setting is not None and origin.misfit is not None:
        data["misfit"] = overrides.shown(origin.option, origin.setting.value)
        data["cause"] = origin.misfit
    return data
