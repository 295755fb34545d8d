"""Train a residual block on random images, in channels-last memory: torch alone, a few seconds."""

import sys

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions with a shortcut that has half of their resolution."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(out)
        self.shortcut = nn.Conv2d(channels, out, 1, stride=2, bias=False)
        self.head = nn.Linear(out, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu(self.first_norm(self.first(x)), inplace=True)
        y = self.second_norm(self.second(y))
        y = nn.functional.relu(y + self.shortcut(x))
        return self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = Residual(12, 20).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        images = torch.rand(4, 12, 22, 22).to(memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(model(images), torch.randint(10, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
