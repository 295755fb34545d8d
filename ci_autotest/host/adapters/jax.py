"""Functions that rows of ``jax.yml`` name as ``adapters.NAME``: every public function of these modules.

A function here takes PyTorch's arguments and calls JAX's public functions with the same documented meaning. It raises
``LackingError`` for arguments without a counterpart in JAX, so that the case is unsupported. Functions that adapters
share and that no row may name are private, or lie in ``jax_promotion`` and ``sizes``.
"""

from ci_autotest.host.adapters.jax_arithmetic import *
from ci_autotest.host.adapters.jax_creation import *
from ci_autotest.host.adapters.jax_indexing import *
from ci_autotest.host.adapters.jax_layers import *
from ci_autotest.host.adapters.jax_promotion import common_dtype, common_float, floating
from ci_autotest.host.adapters.jax_reductions import *
from ci_autotest.host.adapters.jax_windows import *
from ci_autotest.host.adapters.sizes import size
