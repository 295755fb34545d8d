"""Runtimes of other projects for `backend: export`. Each function imports its package: not all need be installed."""

import tempfile
from pathlib import Path

import torch


def openvino_runtime(program):
    import openvino

    model = openvino.compile_model(openvino.convert_model(program), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(*tensors):
        if any(tensor.dtype is torch.bfloat16 for tensor in tensors):
            raise NotImplementedError("NumPy has no bfloat16")
        found = model([tensor.numpy() for tensor in tensors])
        return tuple(torch.from_numpy(found[each].copy()) for each in model.outputs)

    return run


def executorch_runtime(program):
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    loaded = Runtime.get().load_program(lowered.to_executorch().buffer)
    method = loaded.load_method("forward")

    def run(*tensors):
        return tuple(method.execute(list(tensors)))

    run.program = loaded  # keeps it in memory as long as the callable
    return run


def tvm_runtime(program):
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    machine = relax.VirtualMachine(tvm.compile(from_exported_program(program), target="llvm"), tvm.cpu())

    def run(*tensors):
        given = [tvm.runtime.from_dlpack(tensor.contiguous()) for tensor in tensors]
        return tuple(torch.from_dlpack(each) for each in machine["main"](*given))

    return run


def ncnn_runtime(module, tensors):
    import ncnn
    import pnnx

    shapes = [each.shape for each in module(*tensors)]  # ncnn's tensors have no dimension for the batch
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.pt"
        pnnx.export(module, str(path), tensors, fp16=False)
        net = ncnn.Net()
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        if net.load_param(str(path.with_suffix(".ncnn.param"))) or net.load_model(str(path.with_suffix(".ncnn.bin"))):
            raise NotImplementedError("pnnx leaves a layer that ncnn does not have")

    def run(*tensors):
        with net.create_extractor() as extractor:
            for name, tensor in zip(net.input_names(), tensors, strict=True):
                given = tensor[0] if tensor.dim() > 3 else tensor  # an image has no batch there
                extractor.input(name, ncnn.Mat(given.numpy()).clone())
            found = [torch.from_numpy(extractor.extract(name)[1].numpy().copy()) for name in net.output_names()]
        return tuple(each.reshape(shape) for each, shape in zip(found, shapes, strict=True))

    return run


def litert_runtime(module, tensors):
    import litert_torch

    return litert_torch.convert(module.eval(), tensors)
