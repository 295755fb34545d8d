"""The text with which a repro starts its ranks, each in a process of its own, and says how they ended.

What a rank runs is the script's own ``work``. A fork server imports the script once, and the ranks are forked from it.
A rank that is done, or has raised, stays until the script has heard of all of them: if it ended, others would raise
because it is gone.
"""

from __future__ import annotations

from typing import Final

#: What a script imports besides torch.
IMPORTS: Final = (
    "import torch.distributed as dist",
    "from torch.distributed._functional_collectives import AsyncCollectiveTensor",
    "from torch.distributed.tensor import DTensor",
    "from torch.utils._python_dispatch import TorchDispatchMode",
)
LIBRARIES: Final = ("multiprocessing", "multiprocessing.connection", "tempfile", "threading", "time")
_JOIN: Final = """    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
"""
#: Both kinds of devices, because a wrapper may send numbers on the CPU too.
_JOIN_ON_GPUS: Final = """    torch.cuda.set_device(rank)  # a GPU for each rank, which "cuda" then names
    gpu = torch.device("cuda", rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=rank, world_size=RANKS, device_id=gpu)
"""
_FINISH_ON_GPUS: Final = """            torch.cuda.synchronize()
"""
_BEFORE_ON_GPUS: Final = """            # Otherwise no rank could use a GPU that a module has looked for before.
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
"""
#: Seconds that a group may take to start at least.
_START_S: Final = 60
_START: Final = '''LONGEST_S, SILENCE_S = {longest_s}, 20  # without a move; the second if all wait for others


class CollectiveWatch(TorchDispatchMode):
    """Writes down the collective that a rank has entered last."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def enter(self, name):
        with open(self.path, "w") as file:
            file.write(name.strip("_"))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(each, DTensor) for each in types):  # it comes here again, with plain tensors
            return NotImplemented
        is_collective = func.namespace.removesuffix("_autograd") in ("c10d", "_c10d_functional", "_dtensor")
        name = func.overloadpacket.__name__
        if is_collective and name not in ("wait_tensor", "_wrap_tensor_autograd"):
            self.enter(name)
        found = func(*args, **(kwargs or {{}}))
        is_pending = any(issubclass(each, AsyncCollectiveTensor) for each in types)  # an operator on it waits inside
        leaves = torch.utils._pytree.tree_leaves(found)
        has_waited = is_pending and not any(isinstance(each, AsyncCollectiveTensor) for each in leaves)
        if has_waited or (is_collective and (name == "wait_tensor" or func.namespace in {done})):
{finish}            self.enter("")
        return found


def be_rank(rank, folder):
    """Be one rank: a process of its own, which ends with the script."""
    script, path = multiprocessing.parent_process(), os.path.join(folder, str(rank))
    threading.Thread(target=lambda: (script.join(), os._exit(3)), daemon=True).start()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    store = dist.FileStore(os.path.join(folder, "store"), RANKS)
{join}    watch, done = CollectiveWatch(f"{{path}}.place"), ".results"
    watch.enter("")
    try:
        with watch:
            found = work(rank)
    except BaseException as error:
        sys.__excepthook__(*sys.exc_info())
        done, found = ".error", f"raised {{type(error).__name__}}: {{error}}"
    torch.save(found, f"{{path}}.part")
    os.replace(f"{{path}}.part", path + done)
    script.join()


def place_of(path):
    """Return the collective in which a rank is; None if it has not joined the group."""
    try:
        with open(f"{{path}}.place") as file:
            return file.read()
    except FileNotFoundError:
        return None


def ended_ranks(paths, ranks):
    """Wait for the ranks, end them, and return how each of them ended that has no results."""
    seen, since = None, time.monotonic()
    while True:
        done = [os.path.exists(f"{{path}}.results") or os.path.exists(f"{{path}}.error") for path in paths]
        waiting = [number for number, rank in enumerate(ranks) if rank.is_alive() and not done[number]]
        places = {{number: place_of(paths[number]) for number in waiting}}
        if places != seen:
            seen, since = places, time.monotonic()
        if not waiting or time.monotonic() - since > (SILENCE_S if all(places.values()) else LONGEST_S):
            break
        multiprocessing.connection.wait([ranks[number].sentinel for number in waiting], 0.1)
    ends = {{number: f"waits for ever{{place and f' in {{place}}'}}" for number, place in places.items()}}
    for number, rank in enumerate(ranks):
        status = rank.exitcode
        rank.kill()
        rank.join()
        if place_of(paths[number]) is None:
            raise RuntimeError(f"rank {{number}} did not join the group")
        if os.path.exists(f"{{paths[number]}}.error"):
            ends[number] = torch.load(f"{{paths[number]}}.error", weights_only=True)
        elif number not in waiting and not done[number]:
            ends[number] = f"ended with status {{status}}"
    return ends


class RankError(Exception):
    """The ranks are not as one process."""


def of_all_ranks():
    """Start the ranks, and return what each of them has written down."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, str(rank)) for rank in range(RANKS)]
{before}            context = multiprocessing.get_context("forkserver")  # it imports once what each rank needs
            context.set_forkserver_preload(["__main__", "torch._dynamo"])
            ranks = [context.Process(target=be_rank, args=(rank, folder), daemon=True) for rank in range(RANKS)]
            for rank in ranks:
                rank.start()
            ends = ended_ranks(paths, ranks)
            found = [torch.load(f"{{path}}.results", weights_only=True) for path in paths] if not ends else []
    except Exception:
        sys.excepthook(*sys.exc_info())  # it ends with 2: that ranks cannot be started is no finding
    if ends:
        raise RankError(", ".join(f"rank {{rank}} {{ends.get(rank, 'went on')}}" for rank in range(RANKS)))
    return found'''


def launcher_text(timeout_s: int, *, on_gpus: bool) -> str:
    """Return the lines that start the ranks and wait for them.

    Args:
        timeout_s: Seconds that a case may take.
        on_gpus: Whether each rank has a GPU.
    """
    join, finish, before = (_JOIN_ON_GPUS, _FINISH_ON_GPUS, _BEFORE_ON_GPUS) if on_gpus else (_JOIN, "", "")
    # On GPUs those of c10d return before they are done.
    done = ("_dtensor",) if on_gpus else ("_dtensor", "c10d")
    return _START.format(longest_s=max(_START_S, timeout_s), join=join, finish=finish, before=before, done=done)
