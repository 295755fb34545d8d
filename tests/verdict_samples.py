"""Samples of verdicts and suspects: what a worker sends of a case, small."""

from __future__ import annotations

from ci_autotest.findings.suspect import Suspect
from ci_autotest.run import messages
from ci_autotest.run.messages import CaseFailure, CasesDone
from ci_autotest.values.finding import Location
from ci_autotest.values.tally import TestTally
from ci_autotest.values.verdict import (
    BackwardPass,
    Call,
    Cotangent,
    Gradient,
    InFlight,
    Result,
    State,
    Value,
    Verdict,
)

#: Each place with its text; user's names among them that look like our own words.
PLACES = [
    (Value(name="softmax"), "value", "value of softmax"),
    (Value(name="sort", element=1), "value", "value of sort[1]"),
    (Value(name="sort", aspect="dtype", element=0), "dtype", "dtype of sort[0]"),
    (Value(name="x", aspect="shape"), "shape", "shape of x"),
    (Value(name="x", aspect="metadata"), "metadata", "metadata of x"),
    (Value(name="x", aspect="memory"), "aliasing", "memory of x"),
    (Value(name="x", aspect="end"), "mutation", "x after the run"),
    (Gradient(name="x"), "gradient", "gradient of x"),
    (Gradient(name="linear", parameter="0.weight"), "gradient", "gradient of linear.0.weight"),
    (Gradient(name="linear", parameter="w after the run"), "gradient", "gradient of linear.w after the run"),
    (Cotangent(position=2), "mutation", "gradient put into output 2, which the backward pass wrote to"),
    (State(name="running_mean"), "state", "state running_mean after the run"),
    (State(name="gradient of x after the run"), "state", "state gradient of x after the run after the run"),
    (State(), "state", "names of the state after the run"),
    (Call(name="exp"), "error", "call of exp"),
    (BackwardPass(), "leniency", "backward pass"),
    (BackwardPass(), "timeout", "in its backward pass"),
    (InFlight(target="torch.exp"), "crash", "in torch.exp"),
    (InFlight(target="torch.exp", compiling=True), "timeout", "in compiling torch.exp"),
    (Result(), "error", "result"),
    (Value(name="exp"), "graph", "value of exp, as a graph"),
]


FIRST, SECOND = (
    messages.TestInfo(id=f"a.py::{name}", file="a.py", name=name, n=None, location=Location(file="a.py", line=1))
    for name in ("first", "second")
)


OFF = Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate")


def done(cases, verdict=OFF):
    failures = [
        CaseFailure(case=case, attempt=0, candidate="here", verdict=verdict, profile="ordinary") for case in cases
    ]
    return CasesDone(
        done=list(cases), failures=failures, last=True,
        test=TestTally(accepted=len(failures), ordinary_accepted=len(failures)),
    )  # fmt: skip


BAD = Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate")


GOOD = Verdict(outcome="aligned")


TEST = messages.TestInfo(id="a::b", file="a", name="b", n=None, location=Location(file="a", line=1))


SUSPECT = Suspect(TEST, "compiled", 0, 0, BAD, "ordinary", 1, 1, ("a::b",))
