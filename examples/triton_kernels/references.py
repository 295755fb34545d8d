"""What torch has no name for, in plain torch."""

import torch


def rope(x, cos, sin):
    """Rotate the two halves of each token's vector by the angles of its position."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
