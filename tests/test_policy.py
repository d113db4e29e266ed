"""What a call runs, leaves and says: the cases of the window rules, and one test a rule.

The planner is pure; `model.py` applies its plans as the ledger will.
"""

from __future__ import annotations

import pytest

from jobrun.instants import iso
from tests.cases_windows import CASES, PARTIAL, Call, Case
from tests.model import Model, at, spans


def prepared(case: Case) -> Model:
    """The state that the case begins with."""
    model = Model(case.job)
    if case.watermark is None:
        return model
    seen = at(case.seen or case.calls[0].now)
    grid_of = Model(case.job)
    text = grid_of._job(case.stored or case.argv).schedule
    assert text is not None
    model.has_been_called(text, at(case.watermark), seen)
    for row in case.rows:
        model.has(at(row.start), at(row.end), row.state, row.attempts)
    return model


@pytest.mark.parametrize("case", [c for c in CASES if not c.lock_is_held], ids=lambda c: c.id)
def test_case(case: Case) -> None:
    """Windows, their order and bounds, the watermark, the reason and the exit code of each call."""
    model = prepared(case)
    for call in case.calls:
        check(model, case, call)


def check(model: Model, case: Case, call: Call) -> None:
    gaps = len(model.gaps)
    outcome = model.call(call.argv or case.argv, at(call.now), [at(start) for start in call.fails])
    assert call.status == outcome.status, outcome.error
    wanted = [(at(span[0]), at(span[1]), span[2:] == (PARTIAL,)) for span in call.windows]
    assert wanted == list(spans(outcome.tried))
    assert (call.attempts or (1,) * len(wanted)) == outcome.attempts
    assert model.watermark == (None if call.watermark is None else iso(at(call.watermark)))
    assert call.reason == outcome.reason
    if outcome.error is not None:
        for words in call.says:
            assert words in f"{outcome.error.message} {outcome.error.hint}"
        return
    assert outcome.plan is not None
    assert call.left == outcome.plan.left_text
    new = [(gap.start, gap.end, gap.windows) for gap in model.gaps[gaps:]]
    assert [(at(a), at(b), number) for a, b, number in call.gaps] == new
    ended = [f"{case.job}:{iso(at(start))}" for start in call.given_up]
    assert ended == [key for key, _ in outcome.plan.opening.ended]
