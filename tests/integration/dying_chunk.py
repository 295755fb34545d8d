"""A chunk of the soak of two tests, on one implementation that ends its process in one case of the first."""

from __future__ import annotations

import os
import signal
import sys

from benchmarks.soak.chunk import Soak, main
from ci_autotest.backends.eager.backend import TorchBackend

TESTS = ("builtin:suite/activations::relu6", "builtin:suite/activations::celu")


class Dying(TorchBackend):
    """End the process where a comparison of ``relu6``, case 1, has been entered; be plain torch elsewhere."""

    def __init__(self, place):
        super().__init__()
        self.place, self.key = place, None

    def enter(self, key):
        self.key = key
        self.place.enter(key)

    def run(self, program, sources, **how):
        if self.key[:2] == (TESTS[0], 1):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().run(program, sources, **how)


def made(*arguments):
    soak = Soak(*arguments)
    soak.tests = [test for test in soak.tests if test.id in TESTS]
    dying = soak.place = Dying(soak.place)
    soak.implementations = dict.fromkeys(soak.implementations, TorchBackend()) | {"channels last": dying}
    return soak


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], made))
