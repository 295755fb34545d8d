from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from ci_autotest.program.npz import ArrayError, numpy_dtype, read_npz, write_npz
from ci_autotest.values.dtypes import BITS, DTYPES


def test_read_npz__every_dtype__elements_are_those_that_were_written(tmp_path):
    path = tmp_path / "a.npz"
    bits = {name: np.array([[0, 1, 2, 64]], BITS.get(name, "u1")) for name in DTYPES}
    write_npz(
        path, [(name, one.view(numpy_dtype(name)) if name in BITS else one.astype(name)) for name, one in bits.items()]
    )
    found = {name: read_npz(path, name) for name in DTYPES}
    assert [name for name, (dtype, _) in found.items() if dtype != name] == []
    assert [name for name, (_, array) in found.items() if array.shape != (1, 4)] == []
    exact = [*(set(DTYPES) - set(BITS))]
    assert [name for name in exact if not np.array_equal(found[name][1], bits[name].astype(name))] == []
    # 64 is 2 ** -6 * ... in the bits of each: 0x40 of E4M3 is 2, of E5M2 is 2; 64 of bfloat16 is 64 * 2 ** -133.
    assert [found[name][1][0, 3] for name in BITS] == [np.float32(2.0**-127), 2.0, 2.0]
    assert sorted(np.load(path, allow_pickle=False)) == sorted(DTYPES)


def test_read_npz__order_of_bytes_and_of_dimensions__are_those_of_this_machine(tmp_path):
    written = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(written), y=np.float64(0.5))
    assert (read_npz(tmp_path / "a.npz", "x")[1].tolist(), read_npz(tmp_path / "a.npz", "y")[1].shape) == (
        written.tolist(),
        (),
    )


def damaged() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.arange(400.0))
    whole = bytearray(stream.getvalue())
    whole[600:604] = b"oops"
    return bytes(whole)


def members(**texts: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"{name}.npy", text)
    return stream.getvalue()


def saved(array) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=array)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"text", id="text"),
        pytest.param(damaged(), id="damaged"),
        pytest.param(members(x=b"text"), id="member that is no array"),
        pytest.param(members(x=b""), id="empty member"),
        pytest.param(saved(np.array([{}], object)), id="objects"),
        pytest.param(saved(np.zeros(2, "u2")), id="dtype that no test has"),
        pytest.param(saved(np.zeros(2, [("bfloat16", "u1")])), id="bits of another size"),
        pytest.param(saved(np.zeros(2, [("a", "u2"), ("b", "u2")])), id="structure"),
        pytest.param(saved(np.array(["text"])), id="texts"),
    ],
)
def test_read_npz__what_is_no_tensor__is_refused(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ArrayError):
        read_npz(path, "x")


def test_read_npz__unknown_key__names_those_that_there_are(tmp_path):
    write_npz(tmp_path / "a.npz", [("x", np.zeros(2)), ("y", np.zeros(2))])
    with pytest.raises(KeyError) as caught:
        read_npz(tmp_path / "a.npz", "z")
    assert caught.value.args == ("x", "y")
