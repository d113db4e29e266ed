"""A Windows job object: all processes of a command, ended together, also by our own death."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)

_ACCOUNTING, _PROCESS_IDS, _EXTENDED_LIMITS = 1, 3, 9
_KILL_ON_CLOSE = 0x2000
_CTRL_BREAK = 1
_MOST_PIDS = 1024
KILLED = 1  # the exit code of what we end


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("Basic", _BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class _ProcessIds(ctypes.Structure):
    _fields_ = (
        ("Assigned", wintypes.DWORD),
        ("InList", wintypes.DWORD),
        ("Pids", ctypes.c_size_t * _MOST_PIDS),
    )


_kernel32.CreateJobObjectW.restype = wintypes.HANDLE
_kernel32.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
_kernel32.SetInformationJobObject.argtypes = (
    wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD,
)  # fmt: skip
_kernel32.QueryInformationJobObject.argtypes = (
    wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD, wintypes.LPVOID,
)  # fmt: skip
_kernel32.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
_kernel32.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
_kernel32.ResumeThread.argtypes = (wintypes.HANDLE,)
_kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)


def _check(done: int) -> None:
    if not done:
        raise ctypes.WinError(ctypes.get_last_error())


class JobObject:
    """Everything in it dies with its last handle, which is ours, until `release`."""

    def __init__(self) -> None:
        self._handle: int | None = _kernel32.CreateJobObjectW(None, None)
        _check(bool(self._handle))
        self._group = 0
        self._limit(_KILL_ON_CLOSE)

    def take_in(self, process: int, thread: int, pid: int) -> None:
        """A process that was started suspended: nothing that it starts can be outside."""
        _check(_kernel32.AssignProcessToJobObject(self._handle, process))
        self._group = pid
        if _kernel32.ResumeThread(thread) == 0xFFFFFFFF:
            raise ctypes.WinError(ctypes.get_last_error())

    def members(self) -> tuple[int, ...]:
        found = _ProcessIds()
        size = ctypes.sizeof(found)
        _kernel32.QueryInformationJobObject(
            self._handle, _PROCESS_IDS, ctypes.byref(found), size, None
        )
        return tuple(found.Pids[: found.InList])

    def other_member(self) -> int | None:
        """One that is not the command; it may be the host of the console that they share."""
        return next((pid for pid in self.members() if pid != self._group), None)

    def ask(self, number: int) -> bool:
        """Ctrl-Break, which every console program can hear; False where there is no console."""
        # Not os.kill: where the event can't be sent, it goes on to TerminateProcess.
        return bool(_kernel32.GenerateConsoleCtrlEvent(_CTRL_BREAK, self._group))

    def kill(self) -> None:
        _kernel32.TerminateJobObject(self._handle, KILLED)

    def release(self) -> None:
        """The command has ended by itself: what it left behind may live."""
        self._limit(0)

    def close(self) -> None:
        if self._handle is not None:
            _kernel32.CloseHandle(self._handle)
            self._handle = None

    def _limit(self, flags: int) -> None:
        limits = _ExtendedLimits()
        limits.Basic.LimitFlags = flags
        _check(
            _kernel32.SetInformationJobObject(
                self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
        )
