"""The words in braces that a command's arguments may use, and what they stand for.

Exactly `{name}` of a name below, not preceded by `$`, is replaced, as plain text. Everything else
is the command's own: `{}` of find, `{print $1}` of awk, `${HOME}` of a shell. A lone brace word
that is nearly a name is refused, so that a typo never reaches a command. Braces that the command
wants around a name, or nearly one, are doubled: `{{name}}` becomes `{name}`.
"""

from __future__ import annotations

from jobrun import options
from jobrun.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ANY = ("job", "attempt", "token", "run_id")
UNIT = ("key", "slug", "kind")
WINDOW = (
    "start", "end", "start_z", "end_z", "start_unix", "end_unix",
    "start_date", "start_month", "start_hour", "last_date", "windows",
)  # fmt: skip
NAMES = (*WINDOW, *UNIT, *ANY, "file")


def check(command: Sequence[str], mode: str, given: Mapping[str, str]) -> None:
    """Refuse a brace word that is nearly a name, or a name that has no value in this mode."""
    valid = _valid(mode, given)
    for number, argument in enumerate(command):
        for _, word, escaped in _brace_words(argument):
            if escaped or word in valid:
                continue
            where = f"{{{word}}} in argument {number}" if number else f"{{{word}}}"
            braces = f"Braces meant for the command: {{{{{word}}}}}"
            if word in NAMES:
                raise UsageError(f"{where} has no value in {options.MODE_NAMES[mode]}", braces)
            close = options.nearest(word, NAMES)
            if close is not None:
                raise UsageError(f"{where} is no placeholder", f"{{{close}}}? {braces}")


def names_in(command: Sequence[str]) -> set[str]:
    """The placeholders that a command uses."""
    return {
        word
        for argument in command
        for _, word, escaped in _brace_words(argument)
        if word in NAMES and not escaped
    }


def names_window(command: Sequence[str]) -> bool:
    """Whether a command's arguments say which window is meant, as far as they show it."""
    names = {*WINDOW, "key", "slug"}
    return bool(names & names_in(command)) or any("JOBRUN_" in word for word in command)


def fill(argument: str, values: Mapping[str, str]) -> str:
    """The argument with its placeholders replaced; what came out is not looked at again."""
    parts, done = [], 0
    for at, word, escaped in _brace_words(argument):
        width = len(word) + (4 if escaped else 2)
        if not escaped and (word not in NAMES or word not in values):
            continue
        parts += [argument[done:at], f"{{{word}}}" if escaped else values[word]]
        done = at + width
    return "".join(parts) + argument[done:]


def _valid(mode: str, given: Mapping[str, str]) -> set[str]:
    valid = set(ANY)
    if mode not in options.NO_UNITS:
        valid.update(UNIT)
    if mode in options.GRID:
        valid.update(WINDOW)
    if "--key-file" in given:
        valid.add("file")
    return valid


def _brace_words(argument: str) -> Iterator[tuple[int, str, bool]]:
    """(position, word, escaped) of each `{word}` and, for names and what is near, `{{word}}`."""
    at = argument.find("{")
    while at >= 0:
        end = argument.find("}", at)
        if end < 0:
            return
        word = argument[at + 1 : end]
        doubled = word.startswith("{") and argument[end : end + 2] == "}}"
        if doubled and _is_word(word[1:]) and options.nearest(word[1:], NAMES):
            yield at, word[1:], True
            end += 1
        elif _is_word(word) and not (at and argument[at - 1] in "${"):
            yield at, word, False
        else:
            end = at
        at = argument.find("{", end + 1)


def _is_word(text: str) -> bool:
    letters = text.replace("_", "a")
    return text.isascii() and letters.isalnum() and not letters[0].isdigit()
