"""A program from outside is refused unless it is well-formed and names operators only."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import ELEMENTS_AT_MOST, check_program, check_recording
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    LOAD,
    OUTPUT,
    PLACEHOLDER,
    SAVE,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    ModuleCall,
    Program,
    Ref,
    Slice,
    Step,
    TensorSpec,
)
from ci_autotest.program.recording import Recording
from ci_autotest.program.targets import is_attribute, is_function, is_member

SPEC = TensorSpec("float32", (2, 3), (3, 1), 0, 6)
X = Step(PLACEHOLDER, "t0", (SPEC,), (), "x")
OUT = Step(OUTPUT, "output", (Ref(1),), (), "output")
DATA = {"t0": bytes(24)}
HOSTILE = "weight\nimport os; os.system('id')"
MODULE = Step(CALL_FUNCTION, "torch.nn.Linear", (3, 2), (), "module", in_setup=True)


def call(target: str, *args, op=CALL_FUNCTION, **kwargs) -> Step:
    return Step(op, target, args, tuple(kwargs.items()))


def program(*steps: Step, setup: tuple[Step, ...] = ()) -> Program:
    return Program(setup, steps)


RELU = call("torch.nn.functional.relu", Ref(0))
IN_MODULE = ModuleCall("0.features.3", "torch.nn.ReLU", (("inplace", False),), states=("",))


def test_check_program__module_that_a_step_was_recorded_in__passes():
    check_program(program(X, RELU._replace(module=IN_MODULE), OUT))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(IN_MODULE._replace(path="0.__class__"), id="path"),
        pytest.param(IN_MODULE._replace(path=HOSTILE), id="code as a path"),
        pytest.param(IN_MODULE._replace(states=("0.f()",)), id="state"),
        pytest.param(IN_MODULE._replace(target="os.system"), id="class"),
        pytest.param(IN_MODULE._replace(kwargs=((HOSTILE, 1),)), id="keyword"),
        pytest.param(IN_MODULE._replace(kwargs=(("inplace", Ref(0)),)), id="value"),
        pytest.param(IN_MODULE._replace(given=((HOSTILE, 1),)), id="place of an argument"),
        pytest.param(IN_MODULE._replace(given=(("0", Ref(0)),)), id="value of an argument"),
        pytest.param(IN_MODULE._replace(sources=(f"0 {HOSTILE}",)), id="source"),
        pytest.param(IN_MODULE._replace(result="0.f()"), id="result"),
    ],
)
def test_check_program__module_that_cannot_be_constructed__is_refused(module):
    with pytest.raises(ProgramError):
        check_program(program(X, RELU._replace(module=module), OUT))


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(call("torch.relu", Ref(0)), id="function"),
        pytest.param(call("torch.nn.functional.softmax", Ref(0), dim=-1), id="functional"),
        pytest.param(call("torch.linalg.norm", Ref(0)), id="linalg"),
        pytest.param(call("operator.add", Ref(0), 1), id="operator"),
        pytest.param(call("operator.setitem", Ref(0), Slice(None, 1, None), 1), id="set item"),
        pytest.param(call("builtins.getattr", Ref(0), "shape"), id="property"),
        pytest.param(call("builtins.len", Ref(0)), id="len"),
        pytest.param(call("softmax", Ref(0), -1, op=CALL_METHOD), id="method"),
        pytest.param(call("mul_", Ref(0), 2, op=CALL_METHOD), id="method in place"),
        pytest.param(call("torch.sum", Ref(0), dtype=DType("float64")), id="dtype"),
        pytest.param(call("clone", Ref(0), op=CALL_METHOD, memory_format=FrameworkConstant("torch.contiguous_format")), id="constant"),
    ],
)  # fmt: skip
def test_check_program__operator__passes(step):
    check_program(program(X, step, OUT))


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(call("torch.nn.Linear", Ref(1), op=CALL_MODULE), id="forward"),
        pytest.param(call("weight", Ref(0), op=GET_ATTR), id="parameter"),
        pytest.param(call("weight_ih_l0", Ref(0), op=GET_ATTR), id="numbered parameter"),
        pytest.param(call("eval", Ref(0), op=CALL_METHOD), id="mode"),
    ],
)
def test_check_program__module__passes(step):
    step = step._replace(args=(Ref(0), *step.args[1:]))
    check_program(program(X, step, OUT._replace(args=(Ref(2),)), setup=(MODULE,)))


REFUSED_FUNCTIONS = [
    "os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "builtins.open", "subprocess.run",
    "torch.load", "torch.save", "torch.compile", "torch.hub.load", "torch.jit.load", "torch.ops.load_library",
    "torch.classes.load_library", "torch.utils.cpp_extension.load", "torch.from_file", "torch.frombuffer",
    "torch.set_num_threads", "torch.set_default_dtype", "torch.set_default_device", "torch._C._nn._x",
    "torch.__init__", "torch.nn.Module", "torch.nn.DataParallel", "torch.import_ir_module", "torch.export.load",
    "torch.package.PackageImporter", "torch.Tensor.data_ptr", "torch.Tensor.apply_", "torch.Tensor.numpy",
    "torch.Tensor.share_memory_", "torch.multiprocessing.spawn", "torch.distributed.init_process_group",
    "torch.relu; import os", "torch.relu\n", "torch..relu", "torch.", ".relu", "relu", "", "torch.relu()", "torch.rélu",
    "operator.attrgetter", "operator.methodcaller", "operator.call", "operator.delitem", "numpy.load", "torch.serialization.load",
    "torch.fork", "torch.wait", "torch.parse_schema", "torch.manual_seed" + "x" * 80,
]  # fmt: skip


@pytest.mark.parametrize("target", REFUSED_FUNCTIONS)
def test_check_program__function_off_the_list__is_refused(target):
    assert not is_function(target)
    with pytest.raises(ProgramError, match="which is not on the allow list of call_function"):
        check_program(program(X, call(target, Ref(0)), OUT))


@pytest.mark.parametrize(
    "name",
    ["__class__", "__reduce__", "__reduce_ex__", "__setstate__", "__init__", "__dict__", "apply_", "map_", "data_ptr",
     "tofile", "storage", "untyped_storage", "register_hook", "a b", "x;y", "", "_make_subclass",
     "__getattribute__", "__import__", "set_", "share_memory_", "register_forward_hook", "load_state_dict_from_url"],
)  # fmt: skip
def test_check_program__method_off_the_list__is_refused(name):
    assert not is_member(name)
    with pytest.raises(ProgramError, match="which is not on the allow list of call_method"):
        check_program(program(X, call(name, Ref(0), op=CALL_METHOD), OUT))


def test_check_program__array__is_used_by_no_step():
    array = call("numpy", Ref(0), op=CALL_METHOD)
    check_program(program(X, array, OUT._replace(args=(Ref(0),))))
    check_program(program(X, array, OUT._replace(args=(Ref(1),))))  # what a search for a culprit ends with
    for use in (call("dump", Ref(1), "file", op=CALL_METHOD), call("torch.relu", (Ref(1),))):
        with pytest.raises(ProgramError, match="step 2 uses the array of step 1: an array can only be an output"):
            check_program(program(X, array, use, OUT))


SAVED = call(SAVE, List((Ref(0),)))


def test_check_program__tensors_in_memory__pass():
    load = call(LOAD, Ref(1))._replace(kwargs=(("map_location", Device("cpu")),))
    check_program(program(X, SAVED, load, OUT._replace(args=(Ref(2),))))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        pytest.param([call(SAVE, Ref(0), "evil.pt")], "is not of a list of tensors in memory", id="to a file"),
        pytest.param([call(SAVE, List(("text",)))], "is not of a list of tensors in memory", id="text"),
        pytest.param([call(LOAD, "evil.pt")], "is not of a list of tensors in memory", id="from a file"),
        pytest.param([call(LOAD, Ref(0))], "is not of a list of tensors in memory", id="a tensor"),
        pytest.param(
            [SAVED, call(LOAD, Ref(1))._replace(kwargs=(("weights_only", False),))],
            "step 2, builtins.loaded, is not of a list of tensors in memory", id="unpickled",
        ),
        pytest.param([SAVED, call("torch.relu", Ref(1))], "step 2 uses the bytes of step 1: only", id="bytes elsewhere"),
    ],
)  # fmt: skip
def test_check_program__files__are_refused(steps, said):
    with pytest.raises(ProgramError, match=said):
        check_program(program(X, *steps, OUT))


def test_is_attribute__attributes_of_torchs_tensors__are_all_of_them():
    attributes = {
        name for name in dir(torch.Tensor) if not name.startswith("_") and not callable(getattr(torch.Tensor, name))
    }
    assert {name for name in attributes - {"grad_fn"} if not is_attribute(name)} == set()


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__globals__", "func_globals", "_backward_hooks", "grad_fn"])
def test_check_program__attribute_off_the_list__is_refused(name):
    assert not is_attribute(name)
    for step in (call(name, Ref(0), op=GET_ATTR), call("builtins.getattr", Ref(0), name)):
        with pytest.raises(ProgramError, match="not on the allow list"):
            check_program(program(X, step, OUT))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(Program((), ()), "the program has no output: its last step must be one.", id="empty"),
        pytest.param(program(X), "no output", id="no output"),
        pytest.param(program(X, OUT._replace(args=()), OUT), "opcode 'output', which is not allowed there", id="two outputs"),
        pytest.param(program(X, call("torch.relu", Ref(0), op="call"), OUT), "opcode 'call'", id="opcode"),
        pytest.param(program(X, call("torch.relu", Ref(1)), OUT), "step 1 refers to step 1, which is not before it.", id="itself"),
        pytest.param(program(X, call("torch.relu", Ref(5)), OUT), "step 1 refers to step 5", id="a later step"),
        pytest.param(program(X, call("torch.relu", Ref(-1)), OUT), "step 1 refers to step -1", id="a negative step"),
        pytest.param(program(X, call("torch.cat", List((Ref(7),))), OUT), "refers to step 7", id="inside a list"),
        pytest.param(program(X, call("torch.cat", Mapping_((("a", Ref(7)),))), OUT), "refers to step 7", id="inside a mapping"),
        pytest.param(program(X, call("torch.cat", Slice(None, Ref(7), None)), OUT), "refers to step 7", id="inside a slice"),
        pytest.param(program(X, call("torch.cat", (((Ref(7),),),)), OUT), "refers to step 7", id="nested"),
        pytest.param(program(X, call("torch.relu", other=Ref(7)), OUT), "refers to step 7", id="keyword"),
        pytest.param(program(X, call("torch.relu", Ref(0), FrameworkConstant("os.system")), OUT), "constant 'os.system'", id="constant"),
        pytest.param(program(X, call("torch.relu", (FrameworkConstant("os.system"),)), OUT), "constant 'os.system'", id="constant inside a tuple"),
        pytest.param(program(X, call("torch.sum", Ref(0), dtype=DType("load")), OUT), "names dtype 'load'", id="dtype"),
        pytest.param(program(X, call("torch.sum", List((DType("load"),))), OUT), "names dtype 'load'", id="dtype inside a list"),
        pytest.param(program(X, call("relu", 3, op=CALL_METHOD), OUT), "not on the allow list", id="method of a number"),
        pytest.param(program(X, call("relu", op=CALL_METHOD), OUT), "not on the allow list", id="method of nothing"),
        pytest.param(program(X, call("builtins.getattr", Ref(0)), OUT), "not on the allow list", id="getattr of nothing"),
        pytest.param(program(X, call("builtins.getattr", Ref(0), Ref(0)), OUT), "not on the allow list", id="getattr of a value"),
        pytest.param(program(X._replace(target="a b"), OUT._replace(args=())), "not on the allow list", id="key of a placeholder"),
        pytest.param(program(X._replace(args=()), OUT._replace(args=())), "not on the allow list", id="placeholder without spec"),
        pytest.param(Program((X,), (OUT._replace(args=(Ref(0),)),)), "has in_setup=False", id="body step in the setup"),
        pytest.param(program(X, call("load_state_dict", Ref(0), Mapping_(((HOSTILE, Ref(0)),)), op=CALL_METHOD), OUT), "step 1 loads a state with a name that cannot be printed.", id="code in the name of a parameter"),
        pytest.param(program(MODULE, OUT._replace(args=())), "has in_setup=True", id="setup step in the body"),
    ],
)  # fmt: skip
def test_check_program__malformed__is_refused(broken, said):
    with pytest.raises(ProgramError) as caught:
        check_program(broken)
    assert said in str(caught.value)


def recording(spec: object = SPEC, data: dict[str, bytes] | None = None, cotangents=(), expected=None) -> Recording:
    x = X._replace(args=(spec,))
    made = Program((), (x, call("torch.relu", Ref(0)), OUT), cotangents)
    return Recording(made, DATA if data is None else data, {}, expected or {})


def test_check_recording__data_that_fit__pass():
    check_recording(recording())
    check_recording(recording(cotangents=(SPEC,), data={**DATA, "cotangent_0": bytes(24)}))
    check_recording(recording(expected={"output_0": SPEC}, data={**DATA, "output_0": bytes(24)}))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(recording(data={}), "the data of 't0' are missing; float32 with 6 elements takes 24 bytes.", id="missing"),
        pytest.param(recording(data={"t0": bytes(23)}), "the data of 't0' are 23 bytes", id="too short"),
        pytest.param(recording(data={"t0": bytes(25)}), "the data of 't0' are 25 bytes", id="too long"),
        pytest.param(recording(data={**DATA, "other": b""}), "the tensor file holds 'other', which no placeholder names.", id="foreign"),
        pytest.param(recording(cotangents=(SPEC,)), "the data of 'cotangent_0' are missing", id="cotangent missing"),
        pytest.param(recording(expected={"output_0": SPEC}), "the data of 'output_0' are missing", id="expected missing"),
        pytest.param(recording(7), "placeholder 't0' has no tensor spec.", id="no spec"),
        pytest.param(recording(TensorSpec("float31", (2,), (1,), 0, 2)), "has no valid spec", id="unknown dtype"),
        pytest.param(recording(TensorSpec("float32", (2, 3), (1,), 0, 6)), "has no valid spec", id="strides of another length"),
        pytest.param(recording(TensorSpec("float32", (-2,), (1,), 0, 6)), "has no valid spec", id="negative size"),
        pytest.param(recording(TensorSpec("float32", (2,), (-1,), 0, 6)), "has no valid spec", id="negative stride"),
        pytest.param(recording(TensorSpec("float32", (2,), (1,), -1, 6)), "has no valid spec", id="negative offset"),
        pytest.param(recording(TensorSpec("float32", (2, 3), (3, 1), 1, 6)), "reaches element 6 of a storage of 6.", id="beyond by an offset"),
        pytest.param(recording(TensorSpec("float32", (2, 3), (4, 1), 0, 6)), "reaches element 6 of a storage of 6.", id="beyond by a stride"),
        pytest.param(recording(TensorSpec("float32", (6,), (1,), 0, ELEMENTS_AT_MOST + 1)), "element", id="a huge storage"),
        pytest.param(recording(TensorSpec("float32", (10**12,), (0,), 0, 6)), "has 1,000,000,000,000 elements; 268,435,456 are allowed.", id="a huge shape over a small storage"),
    ],
)  # fmt: skip
def test_check_recording__data_that_do_not_fit__are_refused(broken, said):
    with pytest.raises(ProgramError) as caught:
        check_recording(broken)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(TensorSpec("float32", (), (), 0, 6), id="0-dim"),
        pytest.param(TensorSpec("float32", (0, 3), (3, 1), 0, 6), id="empty"),
        pytest.param(TensorSpec("float32", (4,), (0,), 5, 6), id="expanded from the last"),
        pytest.param(TensorSpec("float32", (3, 2), (1, 3), 0, 6), id="transposed"),
    ],
)
def test_check_recording__view_within_its_storage__passes(spec):
    check_recording(recording(spec))


@pytest.mark.parametrize(
    "name",
    ["use_deterministic_algorithms", "manual_seed", "seed", "prepare_multiprocessing_environment", "get_file_path",
     "get_num_threads", "set_num_threads", "init_num_threads"],
)  # fmt: skip
def test_is_function__of_the_whole_process__is_refused(name):
    assert not is_function(f"torch.{name}")


def test_is_function__method_of_such_a_name__is_a_tensors_own():
    assert is_member("get_device")
