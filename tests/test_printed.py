"""What `logs` makes of kept output: harmless text, its last lines, and what is added to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobrun.kept import HEAD, Keeper
from jobrun.printed import Stream, Tail, follow, harmless, last_lines, texts


def test_a_title_and_a_cleared_screen_are_shown_and_not_done() -> None:
    """O07: ESC and OSC sequences of a command are text."""
    printed = "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\tend\n"
    assert harmless(printed) == "\\x1b[31mred\\x1b[0m\\x1b[2J\\x1b]0;title\\x07\tend\n"


def test_a_progress_bar_is_its_last_state() -> None:
    """O06: a thousand updates of one line are one line; a DOS line end is a line end."""
    assert harmless("1%\r50%\r99%\r\ndone\n") == "99%\ndone\n"


def test_bytes_that_are_no_text_and_letters_in_two_pieces() -> None:
    """O01: a broken byte is an escape; half a letter waits for its other half."""
    stream = Stream("stdout", "/x", 1)
    pieces = [(stream, b"ok\xff g\xc3"), (stream, b"\xbcn")]
    assert [text for _, text in texts(pieces)] == ["ok\\xff g", "ün"]


def test_the_last_lines() -> None:
    """Without a newline at the end the rest is a line, too."""
    assert last_lines(b"a\nb\nc", 2) == b"b\nc"
    assert last_lines(b"a\n", 0) == b""


def test_follow_reads_what_came_before_the_end_was_seen(tmp_path: Path) -> None:
    """What a run writes in its last moment is printed, although it is over by then."""
    stream = Stream("stdout", str(tmp_path / "1.out"), None)

    def over() -> Iterator[bool]:
        Path(stream.path).write_bytes(b"one\n")
        yield False
        with open(stream.path, "ab") as file:
            file.write(b"two\n")
        yield True

    steps = over()
    pieces = list(follow([stream], lambda: next(steps), lambda: None))
    assert [raw for _, raw in pieces] == [b"one\n", b"two\n"]


def test_following_goes_on_where_the_middle_was_cut_out(tmp_path: Path) -> None:
    """A file that was replaced by a shorter one is not printed again from its start."""
    path = str(tmp_path / "1.out")
    keeper, tail = Keeper(path), Tail(path)
    keeper.feed(b"a" * HEAD)
    keeper.save()
    assert len(tail.read()) == HEAD
    for letter in (b"b", b"c", b"d"):
        keeper.feed(letter * HEAD)
        keeper.save()
    assert tail.read()[-HEAD:] == b"d" * HEAD
    keeper.feed(b"end")
    keeper.close()
    assert tail.read() == b"end"
    assert tail.read() == b""
