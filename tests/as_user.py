"""Run jobrun as another user: `python -m tests.as_user UID ARGV...`, started by root.

Everything is imported first: the interpreter may lie where that user can't read.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import time

import jobrun

LATER = ("hashlib", "json", "pwd", "select", "termios", "zoneinfo", "difflib", "encodings.idna")


def import_all() -> None:
    for module in pkgutil.walk_packages(jobrun.__path__, "jobrun."):
        # Those of Windows refuse to be imported elsewhere.
        with contextlib.suppress(AssertionError, ImportError):
            importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)


if __name__ == "__main__":
    from jobrun import sqlite_schema
    from jobrun.__main__ import main
    from jobrun.lock_file import primitive

    import_all()
    primitive()
    scripts = sqlite_schema.scripts()
    sqlite_schema.scripts = lambda: scripts
    uid = int(sys.argv[1])
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    code = main(sys.argv[2:], os.environ, time.time)
    sys.stdout.flush()
    os._exit(code)
