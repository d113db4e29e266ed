"""Cases of the window rules in which something changes: the schedule, or the clock."""

from __future__ import annotations

from tests.cases import (
    DAILY,
    FIVE_PAST,
    HOURLY,
    MIDNIGHT,
    PARTIAL,
    TEN,
    TWELVE,
    Call,
    Case,
    Row,
    chain,
    cron,
    day,
    on_record,
    one,
    steps,
)

CHANGES = (
    Case(
        "T33",
        DAILY,
        "2026-05-04T01:00",
        (
            Call(
                "2026-05-05T00:05",
                (),
                "2026-05-04T01:00",
                status=78,
                says=('"every 1h"', '"every 1d"', "2026-05-04T02:00:00Z", "2026-05-05T00:00:00Z"),
            ),
            Call(
                "2026-05-05T00:05",
                (("2026-05-04T01:00", "2026-05-05T00:00", PARTIAL),),
                "2026-05-05T00:00",
                argv=(*DAILY, "--accept-schedule"),
            ),
        ),
        stored=HOURLY,
    ),
    Case(
        "T34",
        cron("0 5 * * *", "UTC", "--accept-schedule"),
        "2025-03-14T23:00",
        (
            Call(
                "2025-03-15T10:00",
                (("2025-03-14T23:00", "2025-03-15T05:00", PARTIAL),),
                "2025-03-15T05:00",
            ),
        ),
        stored=cron("0 23 * * *"),
    ),
    Case(
        "T35",
        ("--every", "60s"),
        MIDNIGHT,
        (
            Call(TWELVE, (), MIDNIGHT, status=78, says=('"every 1d"', '"every 60s"', "720")),
            Call(
                TWELVE,
                steps(MIDNIGHT, 100, minutes=1),
                "2026-09-04T01:40",
                argv=("--every", "60s", "--accept-schedule"),
                left="620",
            ),
        ),
        stored=DAILY,
    ),
    Case(
        "T45",
        HOURLY,
        TEN,
        (
            Call("2026-09-04T13:05", day(12), TEN, argv=(*HOURLY, "--window", "2026-09-04T12:00Z")),
            Call(
                "2026-09-05T00:05",
                (
                    ("2026-09-04T10:00", "2026-09-04T12:00", PARTIAL),
                    ("2026-09-04T13:00", "2026-09-05T00:00", PARTIAL),
                ),
                "2026-09-05T00:00",
                argv=(*DAILY, "--accept-schedule"),
            ),
        ),
    ),
    Case(
        "T46",
        (*DAILY, "--window", "2026-09-04"),
        "2026-09-04T01:00",
        (
            Call(
                "2026-09-05T00:05",
                (),
                "2026-09-04T01:00",
                status=2,
                says=("2026-09-05T00:00:00Z", "2026-09-04T01:00:00Z"),
            ),
        ),
        rows=(Row(MIDNIGHT, "2026-09-04T01:00"),),
    ),
    Case(
        "T47",
        (*HOURLY, "--catch-up", "latest"),
        TEN,
        (
            Call(
                "2026-09-04T14:05",
                day(13),
                "2026-09-04T14:00",
                gaps=(("2026-09-04T11:00", "2026-09-04T13:00", 2),),
                given_up=(TEN,),
            ),
        ),
        rows=on_record(day(10), "failed"),
    ),
)

REPAIR = Call(
    FIVE_PAST,
    (),
    TEN,
    argv=("watermark", "--set", "2026-09-04T10:00Z", "--reason", "the clock was wrong"),
)
AFTER_REPAIR = Call(FIVE_PAST, day(10, 11), TWELVE)
A_YEAR_ON = "2027-09-04T12:00"
AHEAD = Call(
    FIVE_PAST, (), A_YEAR_ON, status=75, says=("2027-09-04T12:00:00Z", "2026-09-04T12:05:00Z")
)

CLOCK = (
    one(
        "T36",
        HOURLY,
        "2027-09-09T00:00",
        Call(
            TWELVE,
            (),
            "2027-09-09T00:00",
            status=75,
            says=("2027-09-09T00:00:00Z", "2026-09-04T12:00:00Z", "jobrun watermark j --set"),
        ),
    ),
    one(
        "T36-small",
        HOURLY,
        TWELVE,
        Call("2026-09-04T11:59:58", (), TWELVE, "clock-behind-watermark"),
    ),
    # With consent to the wrong clock the watermark is far ahead until a person sets it.
    Case(
        "T48",
        HOURLY,
        TEN,
        (
            Call(
                "2027-09-04T12:05",
                chain("2027-09-04T11:00", A_YEAR_ON),
                A_YEAR_ON,
                argv=(*HOURLY, "--catch-up", "latest", "--accept-clock"),
                gaps=((TEN, "2027-09-04T11:00", 365 * 24 + 1),),
            ),
            AHEAD,
            REPAIR,
            AFTER_REPAIR,
        ),
        seen=TEN,
    ),
    # The first call ever meets the wrong clock: there is nothing to measure it by.
    Case(
        "T48-first",
        HOURLY,
        None,
        (
            Call("2027-09-04T12:05", chain("2027-09-04T11:00", A_YEAR_ON), A_YEAR_ON),
            AHEAD,
            REPAIR,
            AFTER_REPAIR,
        ),
    ),
    # Without consent one window runs, the oldest, and no harm is done.
    Case(
        "T48-doubted",
        HOURLY,
        TEN,
        (
            Call("2027-09-04T12:05", day(10), "2026-09-04T11:00", left=str(365 * 24 + 1)),
            Call(FIVE_PAST, day(11), TWELVE),
        ),
        seen=TEN,
    ),
)
