"""Functions that rows of ``paddle.yml`` name as ``adapters.NAME``: every public function of these modules.

A function here takes PyTorch's arguments and calls Paddle's public functions with the same documented meaning; it
computes nothing that would hide a bug in Paddle. It raises ``LackingError`` for arguments without a counterpart in
Paddle, so that the case is unsupported. Functions that adapters share and that no row may name are private, or lie in
``paddle_promotion`` and ``sizes``. Sources: the documentation of PyTorch 2.13 and of Paddle 3.3.1.
"""

from ci_autotest.host.adapters.paddle_layers import *
from ci_autotest.host.adapters.paddle_pairs import *
from ci_autotest.host.adapters.paddle_recurrent import *
from ci_autotest.host.adapters.paddle_tensors import *
from ci_autotest.host.adapters.sizes import size
