"""The five fields of a cron expression: what is refused and why, and one spelling for each meaning.

Refused is whatever cron daemons, cronsim and the versions of croniter read in different ways, and
whatever has no window. What is left means the same to all of them, so croniter can be asked.

This module is on the idle way: it imports nothing that a bare interpreter has not loaded.
"""

from __future__ import annotations

from jobrun.errors import UsageError

LONGEST = 200

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DAY, MONTH, WEEKDAY = 2, 3, 4


class _Field:
    """What one of the five fields may hold."""

    __slots__ = ("high", "low", "name", "names", "turn")

    def __init__(self, name: str, low: int, high: int, names: tuple[str, ...] = ()) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.names = names
        self.turn = len(names)  # after so many values the names begin again


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


def normal(typed: str) -> str:
    """The expression with single blanks, numbers for names, no leading zeros, 0 for Sunday.

    Raises UsageError, with a reason of its own for each thing that is refused.
    """
    words = _words(typed)
    fields = [_normal_field(typed, index, word) for index, word in enumerate(words)]
    _refuse_lonely(typed, fields[DAY], fields[WEEKDAY])
    return " ".join(fields)


def days_together(fields: list[str]) -> str | None:
    """How the two day fields go together: "either", "both", or None where one is a bare `*`.

    Vixie's rule is *either*; where one of them begins with `*`, Debian's cron takes *both*.
    """
    if fields[DAY] == "*" or fields[WEEKDAY] == "*":
        return None
    begins_with_star = fields[DAY][0] == "*" or fields[WEEKDAY][0] == "*"
    return "both" if begins_with_star else "either"


def _refuse(typed: str, rule: str, hint: str) -> UsageError:
    shown = typed if len(typed) <= LONGEST else typed[:40] + "..."
    return UsageError(f'--cron "{shown}": {rule}', hint)


def _words(typed: str) -> list[str]:
    text = typed.strip(" \t\r\n")
    if len(text) > LONGEST:
        rule = f"{len(text)} characters, at most {LONGEST} are read"
        raise _refuse(typed, rule, "several jobs, each with an expression of its own")
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        raise _refuse(
            typed, "only ASCII letters, digits, blanks and * , - / #", '--cron "0 2 * * *"'
        )
    if text.startswith("@"):
        text = _nickname(typed, text)
    words = text.split()
    _refuse_crontab_line(typed, words)
    if len(words) != 5:
        raise _wrong_count(typed, words)
    return words


def _nickname(typed: str, text: str) -> str:
    name = text.split()[0].lower()
    if name == "@reboot":
        rule = "@reboot has no window: it names a start of the machine, not a time"
        raise _refuse(typed, rule, "in the crontab: @reboot jobrun run JOB -- COMMAND")
    if name == "@every":
        rule = "@every is not a cron expression"
        raise _refuse(typed, rule, f"--every {[*text.split(), '1h'][1]}")
    if text.lower() not in NICKNAMES:
        from difflib import get_close_matches

        near = get_close_matches(name, NICKNAMES, 1)
        hint = f"--cron {near[0]}" if near else "--cron @hourly, @daily, @weekly, @monthly, @yearly"
        raise _refuse(typed, f"no such nickname: {name}", hint)
    return NICKNAMES[text.lower()]


def _refuse_crontab_line(typed: str, words: list[str]) -> None:
    """Things that belong around an expression, in a crontab."""
    if words and words[0].upper().startswith(("TZ=", "CRON_TZ=")):
        zone = words[0].split("=", 1)[1] or "Europe/Berlin"
        rest = " ".join(words[1:]) or "0 2 * * *"
        raise _refuse(typed, "a zone is no part of the expression", f'--cron "{rest}" --tz {zone}')
    if any(word.startswith("#") for word in words):
        rest = " ".join(words).split(" #")[0].lstrip("#")
        raise _refuse(typed, "a comment is no part of the expression", f'--cron "{rest}"')


def _wrong_count(typed: str, words: list[str]) -> UsageError:
    count = len(words)
    if count in (6, 7):
        rule = f"expected 5 fields, got {count}: there is none for seconds or years"
        hint = f'--cron "{" ".join(words[1:6])}", or below a minute --every 30s'
        return _refuse(typed, rule, hint)
    rule = f"expected 5 fields, got {count}: minute, hour, day of month, month, day of week"
    return _refuse(typed, rule, '--cron "0 6 * * *" (double quotes work in every shell)')


def _normal_field(typed: str, index: int, word: str) -> str:
    parts = word.split(",")
    if "*" in parts and len(parts) > 1:
        rule = f'{_FIELDS[index].name} "{word}": a * in a list leaves nothing for the others to say'
        raise _refuse(typed, rule, "either * or the list without it")
    marked = [part for part in parts if "#" in part or part[-1:] in "wW"]
    if marked and (len(marked) != len(parts) or (len(parts) > 1 and "#" not in word)):
        rule = f'{_FIELDS[index].name} "{word}": "{marked[0]}" can\'t be mixed with other days'
        raise _refuse(typed, rule, "two jobs, each with one of them")
    return ",".join(_normal_part(typed, index, part) for part in parts)


def _normal_part(typed: str, index: int, part: str) -> str:
    field = _FIELDS[index]
    _refuse_foreign(typed, field, part)
    lower = part.lower()
    if index == DAY and (lower == "l" or lower[-1:] == "w"):
        return "L" if lower == "l" else f"{_value(typed, field, lower[:-1], part)}W"
    if index == WEEKDAY and "#" in lower:
        return _nth_weekday(typed, field, part)
    span, slash, step_text = lower.partition("/")
    step = _step(typed, field, part, step_text) if slash else 1
    if span == "*":
        return f"*/{step}" if slash else "*"
    low_text, dash, high_text = span.partition("-")
    low = _value(typed, field, low_text, part)
    if not dash:
        return str(_single(typed, field, part, low, slash))
    return _range(typed, field, part, (low, _value(typed, field, high_text, part), step))


def _refuse_foreign(typed: str, field: _Field, part: str) -> None:
    """Letters of other dialects: whatever is left when the field's own names are taken out."""
    letters = part.lower()
    for name in field.names:
        letters = letters.replace(name, "")
    where = f'{field.name} "{part}"'
    if "?" in letters:
        raise _refuse(typed, f"{where}: ? is Quartz's", f'--cron "{typed.replace("?", "*")}"')
    if letters[:1] in ("h", "r"):
        rule = (
            "H is Jenkins's hash of the job's name" if letters[0] == "h" else "R is a random time"
        )
        raise _refuse(typed, f"{where}: {rule}", f"a number of your own, {field.low}-{field.high}")
    in_day = field is _FIELDS[DAY]
    if "l" in letters and not (in_day and letters == "l"):
        rule = "L is known in the day of month only, alone, for the last day"
        raise _refuse(typed, f"{where}: {rule}", '--cron "0 0 L * *"')
    if "w" in letters and not (in_day and letters[-1] == "w" and letters[:-1].isdigit()):
        rule = "W is known in the day of month only, after one number"
        raise _refuse(typed, f"{where}: {rule}", '--cron "0 0 15W * *"')
    if "#" in letters and field is not _FIELDS[WEEKDAY]:
        rule = "# is known in the day of week only"
        raise _refuse(typed, f"{where}: {rule}", '--cron "0 0 * * 5#3" (the third Friday)')


def _value(typed: str, field: _Field, text: str, part: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if text.isdigit() and field.low <= int(text) <= field.high:
        return int(text)
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    rule = f'{field.name} "{part}": {field.low}-{field.high}{names}'
    raise _refuse(typed, rule, "a list is 1,15; a range is 1-5; a step is */10 or 10-40/10")


def _step(typed: str, field: _Field, part: str, text: str) -> int:
    if text.isdigit() and int(text) > 0:
        return int(text)
    rule = f'{field.name} "{part}": a step is a whole number above 0'
    raise _refuse(typed, rule, "*/10 or 10-40/10")


def _single(typed: str, field: _Field, part: str, value: int, slash: str) -> int:
    if slash:
        rule = f'{field.name} "{part}": a step needs a range; cron daemons differ here'
        start, step = part.split("/", 1)
        high = 6 if field is _FIELDS[WEEKDAY] else field.high
        hint = f"{start}-{high}/{step}, or " if value < high else ""
        raise _refuse(typed, rule, f"{hint}{start} alone")
    return value % 7 if field is _FIELDS[WEEKDAY] else value


def _range(typed: str, field: _Field, part: str, bounds: tuple[int, int, int]) -> str:
    """A range as `a-b/n`; over the end of a week or a year, by name, as a list."""
    low, high, step = bounds
    named = part.lower().split("/")[0].split("-")[1] in field.names
    if named and high < low:
        high += field.turn
    if low == high or (named and high - low == field.turn):
        rule = f'{field.name} "{part}": a range from a value to itself; cron daemons differ here'
        raise _refuse(typed, rule, f"{part.split('-')[0]} alone, or * for all")
    if high < low:
        rule = f'{field.name} "{part}": the range ends before it begins'
        raise _refuse(typed, rule, f"{low}-{field.high},{field.low}-{high}")
    if high > field.high or high == field.high == 7:
        listed = (
            (value - field.low) % field.turn + field.low for value in range(low, high + 1, step)
        )
        return ",".join(str(value) for value in dict.fromkeys(listed))
    return f"{low}-{high}" + (f"/{step}" if step > 1 else "")


def _nth_weekday(typed: str, field: _Field, part: str) -> str:
    day, _, nth = part.lower().partition("#")
    if nth not in ("1", "2", "3", "4", "5"):
        rule = f'{field.name} "{part}": the number after # is 1 to 5'
        raise _refuse(typed, rule, '--cron "0 0 * * 5#3" (the third Friday)')
    return f"{_value(typed, field, day, part) % 7}#{nth}"


def _refuse_lonely(typed: str, day: str, weekday: str) -> None:
    """L, W and # beside another day field: every reader of cron has its own idea."""
    for mark, field, other in (("L", day, weekday), ("W", day, weekday), ("#", weekday, day)):
        if mark in field and other != "*":
            rule = f'{mark} in "{field}" needs a * in the other day field, not "{other}"'
            raise _refuse(typed, rule, "two jobs, each with one of them")
