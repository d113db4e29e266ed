"""The one line of text that Windows makes of a command: what arrives, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun.command_line import (
    NotFaithful,
    command_line,
    environment_block,
    find_program,
    quoted,
    signed,
)

CMD = r"C:\Windows\System32\cmd.exe"


def taken_apart(line: str) -> list[str]:
    """What the C runtime makes of a line, after its documented rules (no doubled quotes)."""
    words, word, started, inside, slashes = [], "", False, False, 0
    for character in line + " ":
        if character == "\\":
            slashes += 1
            started = True
            continue
        if character == '"':
            word += "\\" * (slashes // 2)
            started = True
            if slashes % 2:
                word += '"'
            else:
                inside = not inside
        elif character in " \t" and not inside:
            word += "\\" * slashes
            if started:
                words.append(word)
            word, started = "", False
        else:
            word += "\\" * slashes + character
            started = True
        slashes = 0
    return words


@given(st.lists(st.text(st.sampled_from('a\\" \tb%^&é')), min_size=1))
def test_arguments_arrive_as_they_were(words: list[str]) -> None:
    """Quotes and backslashes in any order, blanks, nothing at all."""
    assert taken_apart(" ".join(map(quoted, words))) == words


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ('a"b', '"a\\"b"'),
        ("a b\\", '"a b\\\\"'),
        ("C:\\x\\", "C:\\x\\"),
    ],
)
def test_quoting(word: str, text: str) -> None:
    """Only what needs quotes gets them."""
    assert quoted(word) == text


def test_batch_file_goes_through_cmd() -> None:
    """Every argument in quotes, delayed expansion off, and no AutoRun of the user's."""
    line = command_line(r"C:\my jobs\run.CMD", ["a b", "c&d", "", "^|<>"], CMD)
    words = r'"C:\my jobs\run.CMD" "a b" "c&d" "" "^|<>"'
    assert line == f'{CMD} /d /e:on /v:off /s /c "{words}"'


@pytest.mark.parametrize("argument", ['a"b', "%PATH%", "a\nb", "a\rb"])
def test_what_cmd_would_change_is_refused(argument: str) -> None:
    """Refused rather than run with something else; no matter to a real program."""
    with pytest.raises(NotFaithful):
        command_line("run.bat", [argument], CMD)
    assert command_line("run.exe", [argument], CMD).startswith("run.exe ")


FILES = {
    r"C:\tools\backup.exe", r"C:\tools\backup.bat", r"C:\tools\plain", r"C:\work\here.cmd",
    r"D:\other\backup.exe",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("backup", r"C:\tools\backup.exe"),
        ("backup.bat", r"C:\tools\backup.bat"),
        ("plain", r"C:\tools\plain"),
        ("here", None),
        (r".\here", r"C:\work\.\here.cmd"),
        (r"D:\other\backup", r"D:\other\backup.exe"),
        ("nowhere", None),
        ("", None),
    ],
)
def test_where_a_command_is_found(name: str, found: str | None) -> None:
    """PATH and PATHEXT in order; a bare name is never taken from the current folder."""
    files = FILES | {r"C:\work\.\here.cmd"}
    path = r'"C:\tools";;D:\other\\'
    seen = find_program(name, path, ".EXE;.BAT;.CMD", r"C:\work", lambda p: lower(p) in files)
    assert (None if seen is None else lower(seen)) == found


def lower(path: str) -> str:
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.{ending.lower()}" if dot and "\\" not in ending else path


def test_variables_that_are_the_shell_s_own_are_left_out() -> None:
    """`=C:` holds the current folder of a drive; CreateProcess has no place for it here."""
    assert environment_block({"A": "1=2", "=C:": "C:\\x", "": "x"}) == {"A": "1=2"}


@pytest.mark.parametrize(
    ("code", "answer"), [(0, 0), (255, 255), (0xC0000005, -1073741819), (0xFFFFFFFF, -1)]
)
def test_exit_codes_of_32_bits(code: int, answer: int) -> None:
    """sys.exit takes them as signed numbers."""
    assert signed(code) == answer
