"""What a run's result says of a candidate: accepted, rejected, or that it cannot be told."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ci_autotest.values.result import CaseCounts
from ci_autotest.verify import verdict as module
from ci_autotest.verify.verdict import Authenticity, VerifyVerdict, judged, public, signed
from tests import report_samples as samples

OWN = Authenticity(authentic=True, calls=["exp"])
SHARED = Authenticity(authentic=False, calls=["_softmax"], shared=["_softmax"])


def verdict(findings: tuple[Any, ...] = (), *, who: Authenticity = OWN, **counts: int) -> VerifyVerdict:
    """Return the verdict on a run with these findings and numbers of cases."""
    given = samples.outcome(cases=CaseCounts(**counts))
    result = msgspec.structs.replace(samples.run(), results=(given,), findings=findings, broken=(), error=None)
    return judged(result, who, [])


def finding(**changes: Any) -> Any:
    return samples.finding(**{"known": None, "outcome": "misaligned", "blame": "candidate", **changes})


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (verdict(aligned=24), "accepted"),
        (verdict(aligned=24, who=SHARED), "rejected"),
        (verdict((finding(),), aligned=23, misaligned=1), "rejected"),
        (verdict((finding(outcome="crashed", kind="crash"),), aligned=23, crashed=1), "rejected"),
        (verdict((finding(outcome="flaky"),), aligned=23, misaligned=1), "rejected"),
        (verdict((finding(blame="reference"),), aligned=23, reference_off=1), "accepted"),
        (verdict((finding(blame="reference"),), aligned=3, reference_off=20), "undecided"),
        (verdict(aligned=23, flaky=1), "rejected"),
        (verdict(aligned=24, who=Authenticity(is_unseen=True)), "undecided"),
        (verdict(not_run=24), "undecided"),
        (verdict(aligned=4, not_run=20), "undecided"),
        (verdict(aligned=20, unsupported=4), "undecided"),
    ],
)
def test_judged__result_of_a_run__is_one_answer(found: VerifyVerdict, answer: str):
    assert found.verdict == answer, found
    assert found.not_checked


def test_judged__difference_that_the_reference_owes__is_told():
    found = verdict((finding(blame="reference", headline="off by 0.7"),), aligned=23, reference_off=1)
    assert any("off by 0.7 (blame: reference)" in each for each in found.not_checked)
    assert "0.7" not in msgspec.json.encode(public(found)).decode()


def test_public__finding__has_nothing_of_the_hidden_case():
    found = verdict((finding(program="x = 0.123456", message="at 0.123456", headline="0.123456"),), misaligned=1)
    shown = public(msgspec.structs.replace(found, seed="99"))
    assert "0.123456" not in msgspec.json.encode(shown).decode()
    assert (shown.seed, shown.verdict) == ("", "rejected")


def test_signed__other_document__has_another_signature():
    found = verdict(aligned=24)
    assert signed(found, "").signature == ""
    one, other = signed(found, "key"), signed(msgspec.structs.replace(found, correct=False), "key")
    assert one.signature
    assert one.signature != other.signature
    assert signed(one, "key") == one
    # As the guide says, with Python's own library alone.
    plain = {**json.loads(msgspec.json.encode(one)), "signature": ""}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert hmac.new(b"key", text, hashlib.sha256).hexdigest() == one.signature


def test_schema__shipped_file__is_that_of_the_type():
    file = Path(module.__file__).with_name("verify.schema.json")
    assert json.loads(file.read_text("utf-8")) == module.json_schema()
