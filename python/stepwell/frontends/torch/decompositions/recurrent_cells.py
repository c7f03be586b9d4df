"""One step of recurrent networks, and its gradient: what is computed element by element.

`after` gives the states after a step from those before, the products of the step's inputs with
their weights, and those of the hidden state, both [batch, gates * hidden] with biases. `gradients`
has the gradients of the states before (of h but for the way through the products), of the products
of inputs and of those of the hidden state, given those of the states after.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

Tensors = Sequence[torch.Tensor]


class Cell(Protocol):
    """The step of a kind of network."""

    def after(self, states: Tensors, inputs: torch.Tensor, products: torch.Tensor) -> Tensors: ...

    def gradients(
        self, of_after: Tensors, states: Tensors, inputs: torch.Tensor, products: torch.Tensor
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]: ...


class Lstm:
    """Gates in the order i, f, g, o: `c = f c + i g`, `h = o tanh(c)`."""

    def after(self, states: Tensors, inputs: torch.Tensor, products: torch.Tensor) -> Tensors:
        i, f, g, o = (inputs + products).chunk(4, 1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def gradients(
        self, of_after: Tensors, states: Tensors, inputs: torch.Tensor, products: torch.Tensor
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]:
        i, f, g, o = (inputs + products).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        squashed = (f * states[1] + i * g).tanh()
        of_h = of_after[0]
        of_c = of_after[1] + of_h * o * (1 - squashed * squashed)
        of_gates = torch.cat(
            [
                of_c * g * i * (1 - i),
                of_c * states[1] * f * (1 - f),
                of_c * i * (1 - g * g),
                of_h * squashed * o * (1 - o),
            ],
            1,
        )
        return [None, of_c * f], of_gates, of_gates


class Gru:
    """Gates in the order r, z, n: `n = tanh(x + r p)`, `h = (1 - z) n + z h`."""

    def after(self, states: Tensors, inputs: torch.Tensor, products: torch.Tensor) -> Tensors:
        _, z, n, _ = self._gates(inputs, products)
        return ((1 - z) * n + z * states[0],)

    def gradients(
        self, of_after: Tensors, states: Tensors, inputs: torch.Tensor, products: torch.Tensor
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]:
        r, z, n, product = self._gates(inputs, products)
        (of_h,) = of_after
        of_n = of_h * (1 - z) * (1 - n * n)
        of_r = of_n * product * r * (1 - r)
        of_z = of_h * (states[0] - n) * z * (1 - z)
        of_inputs, of_products = (
            torch.cat([of_r, of_z, of_n], 1),
            torch.cat([of_r, of_z, of_n * r], 1),
        )
        return [of_h * z], of_inputs, of_products

    def _gates(self, inputs: torch.Tensor, products: torch.Tensor) -> Tensors:
        """r, z, n, and the product that r scales."""
        (xr, xz, xn), (hr, hz, hn) = inputs.chunk(3, 1), products.chunk(3, 1)
        r = (xr + hr).sigmoid()
        return r, (xz + hz).sigmoid(), (xn + r * hn).tanh(), hn


class Tanh:
    """`h = tanh(x + p)`."""

    def after(self, states: Tensors, inputs: torch.Tensor, products: torch.Tensor) -> Tensors:
        return ((inputs + products).tanh(),)

    def gradients(
        self, of_after: Tensors, states: Tensors, inputs: torch.Tensor, products: torch.Tensor
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]:
        h = (inputs + products).tanh()
        of_sum = of_after[0] * (1 - h * h)
        return [None], of_sum, of_sum


class Relu:
    """`h = max(x + p, 0)`."""

    def after(self, states: Tensors, inputs: torch.Tensor, products: torch.Tensor) -> Tensors:
        return ((inputs + products).relu(),)

    def gradients(
        self, of_after: Tensors, states: Tensors, inputs: torch.Tensor, products: torch.Tensor
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]:
        of_sum = torch.where(inputs + products > 0, of_after[0], 0.0)
        return [None], of_sum, of_sum
