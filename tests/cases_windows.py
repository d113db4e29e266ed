"""The cases of the window rules, as plain data: which windows a call runs, and what it leaves.

Run twice: through the pure planner with a model of the ledger (test_policy.py), and through real
processes. `cases.py` says what a case is made of.
"""

from __future__ import annotations

from tests.cases import (
    DAILY,
    FIVE_PAST,
    HOURLY,
    PARTIAL,
    TEN,
    TWELVE,
    Call,
    Case,
    Row,
    Span,
    chain,
    cron,
    day,
    hours,
    on_record,
    one,
    steps,
    walk,
)
from tests.cases_changes import CHANGES, CLOCK

__all__ = ["CASES", "PARTIAL", "Call", "Case", "Row", "Span"]

BASIC = (
    one("T01", HOURLY, TEN, Call(FIVE_PAST, day(10, 11), TWELVE))._replace(job="sales-summary"),
    one("T02", HOURLY, TEN, Call("2026-09-04T12:00:00.000000", day(10, 11), TWELVE)),
    one("T03", HOURLY, TEN, Call("2026-09-04T11:59:59.999999", day(10), "2026-09-04T11:00")),
    Case(
        "T04",
        (*HOURLY, "--lag", "10m"),
        TEN,
        (
            Call(FIVE_PAST, day(10), "2026-09-04T11:00"),
            Call("2026-09-04T12:10", day(11), TWELVE),
        ),
    ),
    one(
        "T05",
        (*HOURLY, "--max-windows", "1"),
        TEN,
        Call(FIVE_PAST, day(10), "2026-09-04T11:00", left="1"),
    ),
    one("T06", HOURLY, TWELVE, Call(FIVE_PAST, (), TWELVE, "no-closed-window")),
    one(
        "T07",
        ("--every", "10s"),
        "2026-09-04T10:00:00",
        Call(
            "2026-09-04T10:01:05",
            steps("2026-09-04T10:00:00", 6, seconds=10),
            "2026-09-04T10:01:00",
            takes=25,
        ),
    ),
)

FIRST = (
    one("T08", HOURLY, None, Call(FIVE_PAST, day(11), TWELVE)),
    one("T09", (*HOURLY, "--first", "none"), None, Call(FIVE_PAST, (), TWELVE, "no-closed-window")),
    one(
        "T10",
        (*HOURLY, "--first", "2026-09-04T08:00Z"),
        None,
        Call(FIVE_PAST, day(8, 9, 10, 11), TWELVE),
    ),
    one(
        "T10-refused",
        (*HOURLY, "--first", "2026-09-04T08:10Z"),
        None,
        Call(FIVE_PAST, (), None, status=2, says=("2026-09-04T08:00:00Z", "2026-09-04T09:00:00Z")),
    ),
    one(
        "T11",
        ("--every", "30m"),
        None,
        Call("2023-07-04T12:35", chain("2023-07-04T12:00", "2023-07-04T12:30"), "2023-07-04T12:30"),
    ),
    one(
        "T12",
        ("--every", "1mo", "--first", "2026-05-01"),
        None,
        Call(
            "2026-07-06T09:00",
            chain("2026-05-01T00:00", "2026-06-01T00:00", "2026-07-01T00:00"),
            "2026-07-01T00:00",
        ),
    ),
    one(
        "T40",
        cron("0 0 29 * *"),
        None,
        Call("2024-03-15T00:00", chain("2024-01-29T00:00", "2024-02-29T00:00"), "2024-02-29T00:00"),
    ),
)

FAILURES = (
    Case(
        "T13",
        HOURLY,
        TEN,
        (
            Call(FIVE_PAST, day(10), TEN, status=3, fails=(TEN,)),
            Call("2026-09-04T12:20", day(10, 11), TWELVE, attempts=(2, 1)),
        ),
    ),
    Case(
        "T14",
        (*HOURLY, "--on-failure", "continue"),
        TEN,
        (
            Call(FIVE_PAST, day(10, 11), TEN, status=3, fails=(TEN,)),
            Call("2026-09-04T13:05", day(10, 12), "2026-09-04T13:00", attempts=(2, 1)),
        ),
    ),
    Case(
        "T15",
        (*DAILY, "--on-failure", "continue", "--max-windows", "10"),
        "2025-03-18T00:00",
        (
            Call(
                "2025-03-25T06:00",
                steps("2025-03-18T00:00", 7, days=1),
                "2025-03-25T00:00",
                attempts=(2, 2, 2, 2, 1, 1, 1),
            ),
        ),
        rows=on_record(steps("2025-03-18T00:00", 4, days=1), "failed"),
    ),
    Case(
        "T16",
        HOURLY,
        TEN,
        (Call("2026-09-04T11:05", day(10), "2026-09-04T11:00", attempts=(2,)),),
        rows=on_record(day(10), "running"),
    ),
    Case(
        "T17",
        HOURLY,
        TEN,
        (Call("2026-09-04T12:30", (), TWELVE, "no-closed-window"),),
        rows=on_record(day(10, 11)),
    ),
)

BY_HAND = (
    Case(
        "T18",
        HOURLY,
        TEN,
        (
            Call(
                FIVE_PAST,
                day(9),
                TEN,
                status=3,
                argv=("rerun", "2026-09-04T09:00Z"),
                fails=("2026-09-04T09:00",),
                attempts=(2,),
            ),
        ),
        rows=on_record(day(9)),
    ),
    Case(
        "T19",
        HOURLY,
        TEN,
        tuple(
            Call(
                FIVE_PAST,
                windows,
                TEN,
                reason,
                argv=("backfill", "--from", "2026-09-03T00:00Z", "--to", "2026-09-03T03:00Z"),
            )
            for windows, reason in (
                (steps("2026-09-03T00:00", 3, hours=1), None),
                ((), "key-exists"),
            )
        ),
    ),
    one(
        "T20",
        HOURLY,
        TEN,
        Call(
            FIVE_PAST,
            (),
            TEN,
            status=2,
            argv=("backfill", "--from", "2026-09-04T09:00Z", "--to", "2026-09-04T11:00Z"),
            says=("2026-09-04T10:00:00Z",),
        ),
    ),
    Case(
        "T21",
        (*HOURLY, "--lookback", "2"),
        TEN,
        (
            Call("2026-09-04T10:59", (), TEN, "no-closed-window"),
            Call("2026-09-04T11:05", day(8, 9, 10), "2026-09-04T11:00", attempts=(2, 2, 1)),
        ),
        rows=on_record(day(7, 8, 9)),
    ),
    Case(
        "T21-fails",
        (*HOURLY, "--lookback", "2"),
        TEN,
        (
            Call(
                FIVE_PAST,
                day(8, 9, 10, 11),
                TWELVE,
                status=3,
                attempts=(2, 2, 1, 1),
                fails=("2026-09-04T08:00",),
            ),
            Call(FIVE_PAST, (), TWELVE, "no-closed-window"),
        ),
        rows=on_record(day(8, 9)),
    ),
)


CALENDAR = (
    walk(
        "T22", cron("0 0 * * *", "America/New_York"), "2026-03-10T05:00",
        "2026-03-08T05:00", "2026-03-09T04:00", "2026-03-10T04:00",
    ),
    walk(
        "T23", cron("30 1 * * *", "America/New_York"), "2026-11-03T00:00",
        "2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30",
    ),
    walk(
        "T24", cron("30 2 * * *", "America/New_York"), "2026-03-09T07:00",
        "2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30",
    ),
    walk(
        "T25", cron("0 * * * *", "Europe/Berlin"), "2026-10-25T23:00",
        *hours("2026-10-24T22:00", 25),
    ),
    walk(
        "T25-spring", cron("0 * * * *", "Europe/Berlin"), "2026-03-29T22:00",
        *hours("2026-03-28T23:00", 23),
    ),
    walk(
        "T26", cron("0 * * * *", "Asia/Kolkata"), "2026-02-17T20:45",
        "2026-02-17T18:30", "2026-02-17T19:30", "2026-02-17T20:30",
    ),
    walk(
        "T27", cron("20 */4 * * *", "America/Los_Angeles"), "2023-03-12T20:00",
        *(f"2023-03-12T{at}" for at in ("04:20", "08:20", "11:20", "15:20", "19:20")),
    ),
    walk(
        "T28", cron("0 9 * * 1-5", "America/New_York"), "2026-03-10T13:00",
        "2026-03-06T14:00", "2026-03-09T13:00", "2026-03-10T13:00",
    ),
    walk(
        "T29", cron("0,15,30,45 6-22 * * *", "Europe/Brussels"), "2023-10-29T05:20",
        "2023-10-28T20:30", "2023-10-28T20:45", "2023-10-29T05:00", "2023-10-29T05:15",
    ),
    walk(
        "T30", cron("30 * * * *", "Europe/Helsinki"), "2017-10-29T03:00",
        *hours("2017-10-28T23:30", 3),
    ),
    walk(
        "T39", cron("0 0 */10 * *"), "2021-03-12T00:00",
        "2021-02-21T00:00", "2021-03-01T00:00", "2021-03-11T00:00",
    ),
    walk(
        "T39-leap", cron("0 0 29 2 *"), "2028-03-01T00:00",
        "2024-02-29T00:00", "2028-02-29T00:00",
    ),
    walk("T42", ("--every", "1mo"), "2028-03-06T00:00", "2028-02-01T00:00", "2028-03-01T00:00"),
    walk("T42-week", ("--every", "1w"), "2028-03-06T00:00", "2028-02-28T00:00", "2028-03-06T00:00"),
    walk(
        "T42-day", DAILY, "2028-03-06T00:00",
        *(f"2028-{day}T00:00" for day in ("02-28", "02-29", "03-01", "03-02", "03-03", "03-04")),
        "2028-03-05T00:00", "2028-03-06T00:00",
    ),
    walk(
        "T43", cron("0 0 * * *", "Africa/Cairo"), "2026-04-25T00:00",
        "2026-04-22T22:00", "2026-04-23T22:00", "2026-04-24T21:00",
    ),
)  # fmt: skip

A_YEAR_AGO, NOON = "2025-09-04T12:00", "2026-09-04T12:00"
LAST_MINUTE = chain("2026-09-04T11:59", NOON)

BACKLOG = tuple(
    case
    for name, argv, left in (
        ("", ("--every", "60s"), "525500"),
        ("-cron", ("--cron", "* * * * *"), "10000+"),
    )
    for case in (
        one(
            f"T31{name}",
            argv,
            A_YEAR_AGO,
            Call(NOON, steps(A_YEAR_AGO, 100, minutes=1), "2025-09-04T13:40", left=left),
        ),
        one(
            f"T32{name}",
            (*argv, "--catch-up", "latest"),
            A_YEAR_AGO,
            Call(NOON, LAST_MINUTE, NOON, gaps=((A_YEAR_AGO, "2026-09-04T11:59", 525_599),)),
        ),
    )
)

ANCHORS = (
    one(
        "T38-refused",
        ("--every", "7h"),
        None,
        Call("2026-09-05T04:00", (), None, status=2, says=("7h", "--anchor")),
    ),
    one(
        "T38",
        ("--every", "7h", "--anchor", "2026-09-01T00:00Z"),
        TWELVE,
        Call(
            "2026-09-05T04:00",
            chain(TWELVE, "2026-09-04T19:00", "2026-09-05T02:00"),
            "2026-09-05T02:00",
        ),
    ),
)

REFUSED = tuple(
    one(f"T41-{number}", ("--cron", expression), None, Call(NOON, (), None, status=2, says=(says,)))
    for number, (expression, says) in enumerate(
        (
            ("0 0 31 2 *", "never fires"),
            ("0 0 1 * 5#3", "#"),
            ("0 0 5-5 * *", "5-5"),
            ("0 22-2 * * *", "ends before it begins"),
            ("59/15 * * * *", "a step needs a range"),
            ("*/30 * * * * *", "expected 5 fields, got 6"),
            ("H * * * *", "Jenkins"),
            ("R * * * *", "random"),
            ("0 0 15W * 1", "W in"),
            ("@reboot", "has no window"),
            ("0 0 ? * *", "Quartz"),
        ),
        1,
    )
)

LOCKED = (
    Case("T44", HOURLY, TEN, (Call(FIVE_PAST, (), TEN, "lock-held"),), lock_is_held=True),
)  # fmt: skip

CASES = (
    *BASIC, *FIRST, *FAILURES, *BY_HAND, *CALENDAR, *BACKLOG, *CHANGES, *CLOCK, *ANCHORS, *REFUSED,
    *LOCKED,
)  # fmt: skip
