"""How Windows is told what to run: one line of text instead of a list of arguments.

Pure, so that it can be tested anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

BATCH = (".bat", ".cmd")
DEFAULT_PATHEXT = ".COM;.EXE;.BAT;.CMD"


class NotFaithful(ValueError):
    """An argument that cmd.exe would change on its way to a batch file."""


def command_line(program: str, arguments: Sequence[str], shell: str) -> str:
    """For CreateProcess. `shell`: path of cmd.exe, for a batch file. Raises NotFaithful."""
    if program.lower().endswith(BATCH):
        # Windows would start cmd.exe for it by itself, quoting nothing of what cmd.exe reads.
        words = " ".join(_for_batch(word) for word in (program, *arguments))
        return f'{quoted(shell)} /d /e:on /v:off /s /c "{words}"'
    return " ".join(quoted(word) for word in (program, *arguments))


def quoted(word: str) -> str:
    """As the C runtime of the other program takes it apart again."""
    if word and not any(character in word for character in ' \t\n\v"'):
        return word
    text, slashes = '"', 0
    for character in word:
        if character == "\\":
            slashes += 1
            continue
        # Backslashes count only before a quote, where each stands for half a one.
        text += "\\" * (slashes * 2 + 1 if character == '"' else slashes) + character
        slashes = 0
    return text + "\\" * (slashes * 2) + '"'


def _for_batch(word: str) -> str:
    # Within quotes cmd.exe leaves all but these alone, and for these it has no escape there.
    for character in '"%\r\n\0':
        if character in word:
            raise NotFaithful(f"cmd.exe would change {character!r} in {word!r}")
    return f'"{word}"'


def find_program(
    name: str, path: str, pathext: str, folder: str, is_file: Callable[[str], bool]
) -> str | None:
    """The file that is meant, or None: in `folder` where the name has one, else along `path`.

    Unlike CreateProcess itself it never looks into the current folder for a bare name.
    """
    if not name:
        return None
    endings = _endings(name, pathext)
    if any(separator in name for separator in "\\/:"):
        places: Iterator[str] = iter([_joined(folder, name)])
    else:
        places = (_joined(part.strip('"'), name) for part in path.split(";") if part)
    files = (place + ending for place in places for ending in endings)
    return next((file for file in files if is_file(file)), None)


def _endings(name: str, pathext: str) -> list[str]:
    endings = [ending for ending in pathext.split(";") if ending]
    if any(name.lower().endswith(ending.lower()) for ending in endings):
        return ["", *endings]
    return [*endings, ""]


def _joined(folder: str, name: str) -> str:
    absolute = name[:1] in ("\\", "/") or name[1:2] == ":"
    return name if absolute or not folder else f"{folder.rstrip(chr(92))}\\{name}"


def environment_block(variables: dict[str, str]) -> dict[str, str]:
    """Without names that CreateProcess refuses; `=C:` and its like are the shell's own."""
    return {name: value for name, value in variables.items() if name and "=" not in name}


def signed(code: int) -> int:
    """A 32-bit exit code as sys.exit takes it: 0xC0000005 as -1073741819."""
    return code - (1 << 32) if code >= 1 << 31 else code
