"""The vLLM plugin: vLLM calls `register` in every process of an engine (entry point `vllm.general_plugins`).

It does nothing unless the worker that started the engine asked for it through the environment, so an
unrelated vLLM on the same installation is left alone.
"""

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from typing import Any

#: Process id of the worker that owns the engine. Every process below it dies with its parent.
OWNER_PID = "TANDEM_ENGINE_OWNER_PID"
#: Delay of NIXL's progress thread in microseconds.
POLL_DELAY_US = "TANDEM_NIXL_POLL_DELAY_US"

_PR_SET_PDEATHSIG = 1


def register() -> None:
    """Entry point; harmless when called twice."""
    owner = os.environ.get(OWNER_PID)
    if owner is None or int(owner) == os.getpid():
        return
    die_with_parent()
    leave_the_workers_group()
    let_cpu_generators_go_back()
    delay = os.environ.get(POLL_DELAY_US)
    if delay is not None:
        set_poll_delay(int(delay))


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies, so that kill -9 of a worker leaves nothing."""
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent.pid:  # it died before the request was in place
        os._exit(1)


def leave_the_workers_group() -> None:
    """Ctrl-C reaches a whole process group. The worker drains first; its engine must not be gone by then."""
    with contextlib.suppress(OSError):  # a session's leader has a group of its own already
        os.setpgid(0, 0)


def let_cpu_generators_go_back() -> None:
    """vLLM puts a seeded request's generator back by an offset when it discards the sample of a prompt's chunk.

    Generators of a CPU have no offset: they raise, and that ends the engine for everybody. A discarded sample comes
    before the first that counts, so that going back is beginning again.
    """
    torch: Any = importlib.import_module("torch")
    stock: Any = torch.Generator
    if torch.cuda.is_available() or getattr(stock, "patient", False):
        return

    def get_offset(generator: Any) -> int:
        return 0

    def set_offset(generator: Any, offset: int) -> None:
        generator.manual_seed(generator.initial_seed())

    methods = {"patient": True, "get_offset": get_offset, "set_offset": set_offset}
    torch.Generator = type("Generator", (stock,), methods)


def set_poll_delay(delay_us: int) -> None:
    """NIXL's Python API sets the progress thread's delay to 0, which spins a whole core per agent even when idle.

    The attribute is set by the API itself after the configuration is built, so the class has to insist.
    """
    importlib.import_module("nixl")
    bindings: Any = sys.modules["nixl._bindings"]
    stock: Any = bindings.nixlAgentConfig
    if getattr(stock, "patient", False):
        return

    def set_delay(config: Any, wanted_us: int) -> None:
        stock.pthrDelay.fset(config, max(wanted_us, delay_us))

    bindings.nixlAgentConfig = type(
        "nixlAgentConfig", (stock,), {"patient": True, "pthrDelay": property(stock.pthrDelay.fget, set_delay)}
    )
