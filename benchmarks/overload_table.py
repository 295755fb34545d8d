"""Make ``opinfo/overloads.json`` and the overloads of ``report/overloads.json`` for the installed PyTorch.

Every sample of the databases is called, and every call that it causes is tried as the arguments of the overloads that
are related to it: the same, its in-place and ``out=`` forms, its aliases. What no sample reaches takes the arguments of
``opinfo/overload_samples.py``, or is listed with a reason. Run ``python -m benchmarks.overload_table`` from the
repository's root, with an installed ``ci-autotest[opinfo]``.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import torch

from ci_autotest.opinfo.database import entries, foreach_entries, seeded
from ci_autotest.opinfo.overload_calls import OverloadCall, adapted, functional_of, observed
from ci_autotest.opinfo.overload_samples import SAMPLES
from ci_autotest.opinfo.overloads import WRITTEN, OverloadRow, OverloadTable, dispatcher_overloads
from ci_autotest.opinfo.sample_draws import arguments_of
from ci_autotest.report.coverage import DispatcherCatalogue
from ci_autotest.values.operator_aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._ops import OpOverload

    from ci_autotest.opinfo.database import OpInfoEntry

_ROOT: Final = Path(__file__).parent.parent / "ci_autotest"
#: Dtypes of the samples that are looked at, and how many of each; the first that an entry takes has the most.
_DTYPES: Final = {"float32": 8, "complex64": 2, "int64": 2, "bool": 2, "bfloat16": 2, "float64": 2}
#: Samples of an overload that the table keeps.
_KEPT: Final = {"float32": 4}
_OTHERS_KEPT: Final = 1
#: Calls of a donor that are tried in vain.
_FAILURES: Final = 6
#: Calls of a donor that are kept, so that the memory is bounded.
_PER_DONOR: Final = 96
_PYTHON: Final = {
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
}  # fmt: skip
#: Aliases as entries of the dispatcher spell them.
_ALIASES: Final = {
    **{alias.replace(".", "_"): of.replace(".", "_") for alias, of in ALIASES.items()},
    **{f"special_{alias}": of for alias, of in ALIASES.items() if hasattr(torch.special, alias)},
    "special_gammainc": "igamma", "special_gammaln": "lgamma", "special_gammaincc": "igammac",
    "special_multigammaln": "mvlgamma", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    **_PYTHON, **{name.replace("__", "__i", 1): other for name, other in _PYTHON.items()},
}  # fmt: skip


class Donor(NamedTuple):
    """A call and where it is from."""

    source: str
    donor: str
    dtype: str
    number: int
    call: OverloadCall


def donors() -> dict[str, list[Donor]]:
    """Return the calls that the samples cause, by the last name of what is called."""
    found: dict[str, list[Donor]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for name, makers in SAMPLES.items():
        with seeded(0):
            for number, make in enumerate(makers):
                call = arguments_of(make())
                found[name.split(".")[0]].append(Donor(f"{WRITTEN}{name}", "", "float32", number, call))
    for entry in (*entries().values(), *foreach_entries().values()):
        for donor in _of(entry):
            counts[donor.donor] += 1
            if counts[donor.donor] <= _PER_DONOR:
                found[_base(donor.donor)].append(donor)
    return found


def _of(entry: OpInfoEntry) -> Iterator[Donor]:
    dtypes = entry.dtypes()
    for dtype, count in _DTYPES.items():
        if dtype not in dtypes:
            continue
        with seeded(0):
            samples = _samples(entry, dtype, count)
            for number, sample in enumerate(samples):
                for donor, call in observed(entry.call, sample).items():
                    yield Donor(entry.name, donor, dtype, number, call)


def _samples(entry: OpInfoEntry, dtype: str, count: int) -> list[Any]:
    try:
        return list(islice(entry.samples(dtype), count))
    except Exception:  # noqa: BLE001 - a list of dtypes is about all devices
        return []


def _base(donor: str) -> str:
    return donor.split(".")[1] if donor.startswith("aten.") else donor


def related(packet: str) -> list[str]:
    """Return the names whose calls may fit the overloads of an operator, the nearest first."""
    plain = packet if packet.startswith("__") else packet.rstrip("_")
    bare = plain.removeprefix("_")
    names = [packet, plain, f"{plain}_", plain.removesuffix("_copy"), bare, f"_{plain}", plain.removesuffix("_forward")]
    names += [f"{prefix}{bare}" for prefix in ("linalg_", "special_")]
    names += [plain.removeprefix(prefix) for prefix in ("linalg_", "special_")]
    names += [_ALIASES.get(packet, packet), _ALIASES.get(plain, plain)]
    names += [name for name, other in _ALIASES.items() if other == plain]
    return list(dict.fromkeys(names))


def row_of(name: str, overload: OpOverload, known: dict[str, list[Donor]], *, only_itself: bool) -> OverloadRow | None:
    """Return what an overload is tested with; ``None`` if nothing fits."""
    packet = name.split(".")[1]
    groups: dict[tuple[str, str], list[Donor]] = {}
    for base in related(packet):
        for each in known.get(base, ()):
            if not only_itself or _nearness(name, each.source, each.donor)[0] == 0:
                groups.setdefault((each.source, each.donor), []).append(each)
    best: tuple[tuple[int, ...], OverloadRow] | None = None
    for (source, donor), calls in sorted(groups.items(), key=lambda item: _nearness(name, *item[0]))[:12]:
        rank = _nearness(name, source, donor)[:2]
        if best is not None and best[0][:2] < rank:
            break
        samples = _accepted(overload, calls)
        if samples:
            score = (*rank, -len(samples))
            if best is None or score < best[0]:
                best = score, OverloadRow(source, donor, samples)
    return best[1] if best is not None else None


def _accepted(overload: OpOverload, calls: list[Donor]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the samples that an overload accepts, by dtype."""
    samples: dict[str, list[int]] = {}
    failures = 0
    for each in calls:
        kept = samples.setdefault(each.dtype, [])
        if len(kept) >= _KEPT.get(each.dtype, _OTHERS_KEPT) or failures >= _FAILURES:
            continue
        if adapted(overload, each.call, each.donor) is not None:
            kept.append(each.number)
        else:
            failures += 1
    return {dtype: tuple(numbers) for dtype, numbers in samples.items() if numbers}


def _nearness(name: str, source: str, donor: str) -> tuple[int, int, str]:
    """Return how near a donor is: written for it, itself, its namesake, another; then whether it is its own entry."""
    _, packet, kind = name.split(".")
    if source.startswith(WRITTEN):
        written, _, written_kind = source.removeprefix(WRITTEN).partition(".")
        is_own = (written_kind or "default") == (kind.removesuffix("_out").removesuffix("out") or "default")
        rank = 0 if is_own and written in {packet, packet.rstrip("_")} else 3
    else:
        rank = 0 if donor == name else 1 if _base(donor) == packet else 2
    own = source.rpartition(".")[2].partition("[")[0]
    return rank, int(own not in {packet, packet.rstrip("_")}), source


def rows_of(names: list[str], known: dict[str, list[Donor]]) -> dict[str, OverloadRow | None]:
    """Return the rows, found in children: arguments of another operator may crash a kernel.

    A child goes on until an overload ends it; that one takes the calls of itself alone, and if they end the next child
    too, it has none.
    """
    every, found, nearest = dispatcher_overloads(), dict[str, OverloadRow | None](), set[str]()
    left = list(names)
    while left:
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "wb") as pipe:
                for name in left:
                    row = row_of(name, every[name], known, only_itself=name in nearest)
                    pipe.write(msgspec.json.encode(row) + b"\n")
                    pipe.flush()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            for line in pipe:
                found[left.pop(0)] = msgspec.json.decode(line, type=OverloadRow | None)
        os.wait()
        if left:
            print(f"{left[0]} ended its process", file=sys.stderr)
            if left[0] in nearest:
                found[left.pop(0)] = None
            else:
                nearest.add(left[0])
    return found


def main() -> None:
    """Write both files, and print the overloads that have no row and no reason yet."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every = dispatcher_overloads()
    reasons = {name: reason for name, overload in every.items() if (reason := _reason(name, overload))}
    found = rows_of([name for name in every if name not in reasons], donors())
    rows = {name: row for name, row in found.items() if row is not None}
    left_out = defaultdict[Any, list[str]](list)
    for name in every:
        if name not in rows:
            left_out[reasons.get(name, "no_sample")].append(name)
    version = ".".join(torch.__version__.split(".")[:2])
    catalogue = DispatcherCatalogue(version, tuple(rows), {why: tuple(own) for why, own in sorted(left_out.items())})
    _write("opinfo", OverloadTable(version, rows), b'},"aten.')
    _write("report", catalogue, b'","aten.')
    counts = ", ".join(f"{why} {len(own)}" for why, own in sorted(left_out.items()))
    print(f"{len(rows)} of {len(every)} overloads ({len(rows) / len(every):.1%}); left out: {counts}", file=sys.stderr)
    print("\n".join(left_out["no_sample"]))


def _write(package: str, value: object, between: bytes) -> None:
    """Write a file with an overload a line, so that a change of it can be read."""
    first, second = between.split(b",")
    encoded = msgspec.json.encode(value).replace(between, first + b",\n" + second)
    (_ROOT / package / "overloads.json").write_bytes(encoded + b"\n")


_CUDNN: Final = r"_?(cudnn|miopen|mps|lstm_mps|triton|cslt)_.*|.*_mps.*|_use_(cudnn|miopen)_.*"
#: What no test calls, by name, and why.
LEFT_OUT: Final = (
    (_CUDNN, "device"),
    (r"mkldnn_rnn_layer(_backward|\.out).*|.*(efficient|cudnn)_attention.*|.*flash_attention(?!_for_cpu).*", "device"),
    (r".*semi_structured.*|_copy_from\w*\..*|_propagate_xla_data\..*", "device"),
    (r"_scaled_grouped_mm.*|_scaled_mm_v2.*|_nnpack_.*", "device"),
    (r"from_file\..*|set_?\..*|set_data\..*", "memory"),
    (r"_nested_.*|nested_to_padded_tensor\..*|to_padded_tensor\..*|_jagged_.*|_padded_dense_to_jagged.*", "nested"),
    (r"_(make|unpack)_dual\w*\..*|_(add|remove)_batch_dim\..*|_fw_primal_copy\..*|retain_grad\..*", "transform"),
    (r"get_gradients\..*|_backward\..*", "transform"),
    (r"_resize_output_?\..*|_?pin_memory\..*|_mkldnn_transpose_\..*|_thnn_fused_\w+\..*", "device"),
    (r"(_?indices|_?values|_sparse_broadcast_to)_copy\..*", "device"),
    (r"(linear|matmul)_backward\..*|.*_overrideable.*|get_device\..*", "device"),
    (r"record_stream\..*|qscheme\..*", "no_result"),
    (r"(new_empty|empty_(like|strided|permuted))\w*\.\w*out", "no_result"),
    (r"hash_tensor\.out", "no_result"),
    (r"quantized_(lstm|gru|rnn)\w*\..*|_wrapped_\w+\..*|fbgemm_(pack|linear_fp16|linear_int8)\w*\..*", "object"),
)  # fmt: skip
#: Kernels that a CPU can run.
_KEYS: Final = (
    "CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU", "CompositeImplicitAutograd",
    "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
)  # fmt: skip


def _reason(name: str, overload: OpOverload) -> str:
    """Return why no test calls an overload; empty if nothing is against it."""
    named = next((reason for pattern, reason in LEFT_OUT if re.fullmatch(pattern, name.removeprefix("aten."))), "")
    functional = functional_of(overload) if any(one.is_out for one in overload._schema.arguments) else overload
    has_kernel = functional is None or any(
        torch._C._dispatch_has_kernel_for_dispatch_key(functional.name(), key) for key in _KEYS
    )
    return named or ("" if has_kernel else "device")


if __name__ == "__main__":
    main()
