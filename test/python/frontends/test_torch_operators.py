"""Modules of PyTorch, compiled, against PyTorch itself, within 1e-4 in float32."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import Function, compare  # noqa: E402

import stepwell  # noqa: E402

nn, functional = torch.nn, torch.nn.functional


class _Rotated(nn.Module):
    """With a buffer of complex numbers."""

    def __init__(self):
        super().__init__()
        angles = torch.arange(6.0)[:, None] * torch.tensor([1.0, 0.1])
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns).flatten(-2)


def _bag(mode, **more):
    return nn.EmbeddingBag(10, 4, mode=mode, **more)


def _set_items(x):
    y = x.clone()
    y[1, :2] = 7.0
    y[x > 1] = 0
    return y


def _histograms(x):
    return (
        torch.histc(x, 4, -1, 1),
        torch.histc(x, 7),
        torch.histc(x[:1, :1], 3),
        torch.histc(x * float("nan"), 3, 0, 1),
    )


def _without_content(x, i):
    like = torch.empty_like(x)
    like[i] = x
    strided = torch.empty_strided((4, 3), (1, 4))
    strided.copy_(x.t())
    return like, strided, x.new_empty(2, 3).fill_(2), torch.empty(3).fill_(1)


def _experts(x, rows, ends):
    """Rows of x, columns of x, and inner products of its columns, by groups that end there.

    PyTorch leaves rows and columns behind the last group as they were in memory.
    """
    columns, seen = rows.mT.contiguous(), torch.arange(x.shape[0]) < ends[-1]
    return (
        torch._grouped_mm(x, rows, ends).where(seen.unsqueeze(1), 0),
        torch._grouped_mm(columns, x.t(), ends).where(seen, 0),
        torch._grouped_mm(x.t(), x, ends),
        torch._grouped_mm(columns, rows),
    )


def _groups(rows, ends):
    """PyTorch exports such products of bfloat16 alone."""
    x, matrices = torch.randn(rows, 16), torch.randn(len(ends), 16, 24)
    return x.bfloat16(), matrices.bfloat16(), torch.tensor(ends).int()


def _scatter_reduced(x, index):
    """All ways to join elements that meet, with and without those that are there."""
    start = torch.arange(21).reshape(3, 7).to(x.dtype) - 4
    return tuple(
        start.scatter_reduce(dim, index[:rows, :4], x, how, include_self=kept)
        for dim, rows in ((0, 5), (-1, 3))
        for how in ("sum", "prod", "mean", "amax", "amin")
        for kept in (True, False)
    )


def _special(x):
    return (
        torch.erfc(x * 9),
        torch.erfinv(x * 0.99),
        torch.lgamma(x * 20),
        torch.lgamma(torch.arange(1, 9)),
        torch.digamma(x * 20),
        torch.polygamma(2, x.abs() + 1),
        torch.mvlgamma(x + 3, 2),
        torch.special.i1e(x * 9),
        torch.special.zeta(x[:1].abs() + 1.5, x.abs() + 1),
        torch.nextafter(x, -x),
    )


def _more_special(x):
    return (
        torch.i0(x * 20),
        torch.special.i0e(x * 20),
        torch.special.i1(x * 20),
        torch.special.i0(torch.arange(4)),
        torch.special.erfcx(x * 8),
        torch.special.log_ndtr(x * 12),
        torch.special.ndtri((x + 1) / 2),
        torch.special.ndtri(1e-20 * x.abs()),
        *torch.frexp(x * 20),
        *torch.frexp(x * 1e-39),
    )


def _bits_as(x):
    return (
        x.view(torch.int32),
        x.view(torch.int16),
        x.view(torch.uint8),
        x.half().view(torch.int32),
        x.double().view(torch.float32).view(torch.float64),
    )


def _with_holes(x):
    y = torch.where(x > 0.5, torch.nan, x)
    return (
        torch.fmax(y, x[0]),
        torch.fmin(x, y[:1]),
        torch.nanmedian(y, 1),
        torch.nanmedian(y),
        torch.nanmedian(y / 0 * 0),
        torch.isclose(x, x[0]),
        torch.isclose(y, y, equal_nan=True),
        torch.isclose(x, x * 1.001, rtol=1e-2, atol=0),
        torch.isclose(x / 0, x * 2 / 0),
        torch.copysign(x, -2.0),
        torch.addmv(x[:, 0], x, x[0], beta=0.5, alpha=2),
    )


def _order_with_nans(x):
    y = torch.where(x > 0.5, torch.nan, torch.where(x < -0.5, x, x * 0))
    whole = torch.where(x > 0.9, torch.nan, x)
    return (
        torch.sort(y, dim=1, stable=True),
        torch.sort(y, dim=0, descending=True, stable=True),
        torch.argsort(-y, dim=1, stable=True),
        torch.topk(whole, 3)[0],
        torch.topk(whole, 3, largest=False)[0],
        torch.kthvalue(whole, 4)[0],
        whole.median(1)[0],
        whole[:, :2].median(),
        torch.sort(whole.bfloat16())[0],
    )


def _of_numbers(x):
    return torch.cumsum(x, 0), x.max(0), x.min(-1), torch.cumsum(x.int(), 0)


def _complex(x, y):
    z = torch.complex(x, y)
    pairs = torch.view_as_complex(x.reshape(2, 4, 3, 2))
    return (
        torch.view_as_real(pairs * torch.polar(x, y)[..., :3]),
        torch.view_as_real(pairs.unsqueeze(1).transpose(1, 2).reshape(4, 2, 3)),
        (z / torch.complex(y, x) - 3) * y + x * 2,
        torch.sub(z, y, alpha=2).conj().resolve_conj(),
        z.real + z.imag,
        z.abs(),
        z.angle(),
        z.exp(),
        z[0] @ z[1].mT,
    )


def _fourier(x, y):
    z = torch.complex(x, y)
    return (
        *(torch.fft.fft(x, norm=norm, dim=1) for norm in ("ortho", "forward", "backward")),
        *(torch.fft.ifft2(z, norm=norm) for norm in ("ortho", "forward", "backward")),
        torch.fft.fft2(x).real,
        torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, dim=1),
        torch.fft.irfft(z, 7),
        torch.fft.irfft2(torch.fft.rfft2(x) * z[0, :1, :4]),
        torch.fft.irfftn(torch.fft.rfftn(x), norm="ortho"),
        torch.fft.hfft(z),
        torch.fft.ihfft(x).resolve_conj(),
        torch.fft.fft(x, 8),
        torch.fft.fftshift(torch.fft.fft(x)),
        torch.stft(x.reshape(1, -1), 16, window=torch.hann_window(16), return_complex=True),
    )


def _by_their_parts(x, y):
    z, i = torch.complex(x, y), torch.tensor([2, -1])
    narrow = z[:, :2].clone()
    narrow[1] = 3j
    return (
        z.sum(),
        z.sum((0, 2), keepdim=True),
        z.mean(1),
        z.cumsum(1),
        z[:, i],
        z.index_select(1, i.abs()),
        z.flip(2),
        torch.where(x > 0, z, y),
        z.masked_fill(x > 0, 2 - 1j),
        functional.pad(z, (1, 2)),
        torch.stack([z, z.conj()]).resolve_conj(),
        narrow,
        z * 1j + (2 + 1j),
        1j - x,
        torch.full_like(z, 2j) / z,
        z**3,
        z**-2,
        z**0.5,
        (z * 0) ** 2.5,
        x ** torch.full((), 1 + 1j),
        1 / z,
        z.sgn(),
        z == z.real,
        z[0] @ z[1, 0],
        torch.vdot(z[0, 0], z[1, 0]),
        torch.eye(3, dtype=torch.complex64) * z[0, :3, :3],
    )


def _short_time(x):
    window = torch.hann_window(16)
    parts = torch.stft(x, 16, window=window, return_complex=True)
    odd = torch.stft(x, 16, 5, 12, torch.ones(12), normalized=True, return_complex=True)
    return (
        torch.istft(parts * 2, 16, window=window),
        torch.istft(parts, 16, window=window, length=70),
        torch.istft(odd, 16, 5, 12, torch.ones(12), normalized=True, length=40),
    )


def _covariances(x, counts, weights):
    return (
        torch.cov(x),
        torch.cov(x[0]),
        torch.cov(x, fweights=counts, correction=0),
        x.cov(aweights=weights, fweights=counts),
        torch.corrcoef(x),
        torch.corrcoef(x[0]),
        torch.cov(torch.complex(x, x.flip(0))),
    )


def _places(x, index, values):
    return (
        torch.nonzero_static(x > 0, size=4),
        torch.nonzero_static(x, size=2, fill_value=7),
        torch.nonzero_static(torch.relu(x), size=20),
        x.put(index, values),
        x.put(index, values, accumulate=True),
        x.masked_scatter(x[0] > 0, values.repeat(3, 2)),
    )


def _distances(x):
    return (
        *(torch.cdist(x, x + 1, p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)),
        functional.pdist(x),
        torch.dist(x, x + 1, 3),
    )


def _at_points(x, grid):
    return tuple(
        functional.grid_sample(x, grid, mode, padding, corners)
        for mode, padding, corners in (
            ("bilinear", "zeros", False),
            ("bilinear", "reflection", True),
            ("bilinear", "reflection", False),
            ("nearest", "border", True),
        )
    )


def _antialiased(mode, **how):
    return lambda x: functional.interpolate(x, mode=mode, antialias=True, **how)


def _each_way(x):
    return (
        x.unfold(1, 2, 1),
        x.flip(1),
        x.roll(1, 0),
        x.roll((0, -7, 5), (0, 1, 1)),
        x.roll(3),
        x.roll(0, 0),
        torch.diagonal(x, 1),
        torch.diagonal(x, -2),
        torch.diagonal(x, 9),
        torch.diagonal(x.unsqueeze(1).repeat(1, 3, 2), -1, 2, 0),
        torch.diagonal(x.unsqueeze(2).repeat(1, 1, 3), 1, 1, 0),
        torch.trace(x),
        torch.trace(x.int()),
        x.tril(),
        x.repeat_interleave(2, 0),
        x[:0],
    )


def _scatters(x, y):
    return (
        x.slice_scatter(y, 1, 0, 2),
        x.slice_scatter(y, 1, 0, 4, 2),
        x.select_scatter(y[:, 0], 1, 2),
        x.diagonal_scatter(y[:, 0]),
    )


def _of_bytes(low, high):
    counts = torch.tensor([0, 1, 7], dtype=torch.uint8)
    return (
        *(value for x in (low, high) for value in (x.max(), x.min(), x.amax(0), x.amin(0, True))),
        *(value for x in (low, high) for value in (x >> 1, x >> counts, x << counts)),
        *(value for x in (low, high) for value in (*x.max(0), *x.min(0, True), x.argmax())),
        *(value for x in (low > 7, low > 79) for value in (x.amax(0), *x.min(0), x.max())),
        low.long() << torch.tensor([3, 4, 5]),
        -low.long() >> high.long() % 4,
    )


def _remainders(x):
    real = x.float()
    return (
        x // 3,
        x % 3,
        torch.div(x, 4, rounding_mode="trunc"),
        torch.remainder(real, 2.5),
        torch.remainder(real, -2.5),
        torch.fmod(real, 2.5),
        x << 1,
        x >> 1,
    )


R = torch.randn
CASES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), R(4, 16)),
    "cnn-batch-norm": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        ),
        R(2, 3, 16, 16),
    ),
    "lstm": lambda: (nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), R(2, 5, 8)),
    "gru": lambda: (nn.GRU(8, 16, batch_first=True), R(2, 5, 8)),
    "transformer-encoder": lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        ),
        R(2, 6, 32),
    ),
    "attention": lambda: (
        lambda q, k, mask: (
            functional.scaled_dot_product_attention(q, q, q, is_causal=True),
            functional.scaled_dot_product_attention(q, q, q, attn_mask=mask),
            functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        ),
        R(2, 4, 6, 8),
        R(2, 2, 6, 8),
        torch.tril(torch.ones(6, 6)) > 0,
    ),
    "embedding-bag-mean": lambda: (_bag("mean"), torch.randint(0, 10, (3, 5))),
    "embedding-bag-sum-offsets": lambda: (
        _bag("sum", padding_idx=2),
        torch.tensor([1, 2, 2, 4, 5, 4, 3, 2, 9]),
        torch.tensor([0, 3, 3, 5]),
    ),
    "embedding-bag-max": lambda: (
        _bag("max", padding_idx=2),
        torch.tensor([1, 2, 2, 4, 5, 4]),
        torch.tensor([0, 3, 3]),
    ),
    "index": lambda: (
        lambda x, i: (x[i], x[:, i], torch.index_select(x, 1, i.abs()), x[i, i]),
        R(5, 4),
        torch.tensor([3, 1, -1]),
    ),
    "index-put": lambda: (
        lambda x, i, v: (
            torch.index_put(x, (i,), v),
            torch.index_put(x, (i,), v, accumulate=True),
            x.index_add(0, i.abs(), v),
        ),
        R(5, 3),
        torch.tensor([3, -1]),
        R(2, 3),
    ),
    "gather-scatter": lambda: (
        lambda x, i, v: (torch.gather(x, 1, i), x.scatter(1, i, v), x.scatter_add(1, i, v)),
        R(5, 4),
        torch.tensor([[0, 1], [2, 3], [3, 1], [1, 2], [0, 3]]),
        R(5, 2),
    ),
    "set-items": lambda: (_set_items, R(3, 4)),
    "scatters": lambda: (_scatters, R(3, 4), R(3, 2)),
    "order": lambda: (
        lambda x: (
            torch.topk(x, 3),
            torch.topk(x, 1, sorted=False),
            torch.topk(x, 2, 0, largest=False),
            torch.sort(x, descending=True),
            torch.argsort(x, dim=0),
            torch.sort((x > 0).float(), dim=1, stable=True),
            torch.kthvalue(x, 2, 1),
            x.median(1),
            x.median(),
        ),
        R(4, 7),
    ),
    "histograms": lambda: (_histograms, R(4, 7)),
    "experts": lambda: (_experts, *_groups(48, [3, 3, 17, 40])),
    "experts-of-large-groups": lambda: (_experts, *_groups(400, [150, 400])),
    "experts-of-few-rows": lambda: (_experts, *_groups(8, [0, 1, 1, 1, 3, 3])),
    "without-content": lambda: (_without_content, R(3, 4), torch.tensor([2, 0, 1])),
    "masks": lambda: (
        lambda x: (x.masked_fill(x > 0, -1e9), torch.where(x > 0, x, torch.zeros(()))),
        R(4, 7),
    ),
    "cumulative": lambda: (
        lambda x: (
            torch.cumsum(x, 1),
            torch.cumprod(x, 0),
            torch.cummax(x, 1),
            torch.cummin(x, 1),
            torch.logcumsumexp(x, 1),
        ),
        R(4, 7),
    ),
    "einsum": lambda: (
        lambda a, b: torch.einsum("bij,bkj->bik", a, b),
        R(2, 3, 4),
        R(2, 5, 4),
    ),
    "interpolate": lambda: (
        lambda x: (
            functional.interpolate(x, scale_factor=2),
            functional.interpolate(x, size=(7, 9)),
            functional.interpolate(x, size=(7, 9), mode="bilinear"),
            functional.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
            functional.interpolate(x, size=(7, 9), mode="bicubic"),
        ),
        R(1, 2, 4, 4),
    ),
    "pads": lambda: (
        lambda x: tuple(
            functional.pad(x, (1, 2, 0, 1), mode=mode)
            for mode in ("constant", "reflect", "replicate", "circular")
        ),
        R(1, 2, 4, 4),
    ),
    "norms": lambda: (
        nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm(5)),
        R(2, 4, 5, 5),
    ),
    "convolution-transposed": lambda: (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        R(1, 4, 5, 5),
    ),
    "pools": lambda: (
        lambda x: (
            functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            functional.avg_pool2d(x, 3, 2, 1),
            functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
            functional.adaptive_max_pool2d(x, (4, 2), return_indices=True),
            functional.adaptive_max_pool2d(x, (5, 3), return_indices=True),
            functional.max_pool3d(x, (1, 2, 3), 2, (0, 1, 1), return_indices=True),
            functional.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
            functional.adaptive_avg_pool2d(x, (3, 5)),
        ),
        R(1, 2, 8, 8),
    ),
    "bfloat16": lambda: (
        nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).bfloat16(),
        R(2, 8).bfloat16(),
    ),
    "float16": lambda: (nn.Sequential(nn.Linear(8, 8), nn.ReLU()).half(), R(2, 8).half()),
    "integers": lambda: (
        lambda x: (x.argmax(-1), (x > 0).sum(), x.to(torch.int32), x > 0),
        R(3, 5),
    ),
    "bytes": lambda: (lambda x: (x // 3 + x, x.float() / 255), torch.arange(9, dtype=torch.uint8)),
    "comparisons-of-constants": lambda: (
        lambda x: tuple(
            torch.where(compare(values, number), x, -x)
            for compare in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)
            for number in (0, 1, 1.5)
            for values in (torch.ones(4), torch.arange(4.0).clamp(1, 1))
        ),
        R(4),
    ),
    "bits": lambda: (
        lambda x: (x ^ 5, x | 1, x & 6, (x > 3) | True, (x > 3) ^ True),
        torch.arange(-9, 10),
    ),
    "special-functions": lambda: (_special, torch.linspace(-1, 1, 24).reshape(4, 6)),
    "more-special-functions": lambda: (_more_special, torch.linspace(-1, 1, 24).reshape(4, 6)),
    "more-special-functions-f64": lambda: (_more_special, torch.linspace(-1, 1, 9).double()),
    "bits-as-other-types": lambda: (_bits_as, R(3, 4)),
    "mode": lambda: (
        lambda x: (torch.mode(x, 1), torch.mode(x, 0, True), torch.mode(x.float())[0]),
        torch.randint(0, 3, (4, 9)),
    ),
    "scatter-reduce": lambda: (_scatter_reduced, R(5, 7), torch.randint(0, 3, (5, 7))),
    "scatter-reduce-of-integers": lambda: (
        _scatter_reduced,
        torch.randint(-9, 9, (5, 7)),
        torch.randint(0, 3, (5, 7)),
    ),
    "scatter-reduce-of-booleans": lambda: (
        lambda x, i: tuple(
            torch.zeros(3, dtype=torch.bool).scatter_reduce(0, i, x, how, include_self=False)
            for how in ("amax", "amin")
        ),
        torch.tensor([True, False, True, True]),
        torch.tensor([0, 1, 0, 1]),
    ),
    "scatter-reduce-of-numbers": lambda: (
        lambda x: x.scatter_reduce(0, torch.tensor(0), x, "prod"),
        torch.tensor(3.0),
    ),
    "index-reduce": lambda: (
        lambda x, i: tuple(
            torch.ones(4, 3, 2).index_reduce(1, i, x, how, include_self=kept)
            for how in ("prod", "mean", "amax", "amin")
            for kept in (True, False)
        ),
        R(4, 5, 2),
        torch.tensor([0, 2, 2, 0, 0]),
    ),
    "order-with-nans": lambda: (_order_with_nans, R(6, 40)),
    "with-holes": lambda: (_with_holes, R(4, 7)),
    "of-numbers": lambda: (_of_numbers, torch.tensor(2.5)),
    "complex": lambda: (_complex, R(2, 4, 6), R(2, 4, 6)),
    "complex-f64": lambda: (_complex, R(2, 4, 6).double(), R(2, 4, 6).double()),
    "fourier": lambda: (_fourier, R(2, 4, 6), R(2, 4, 6)),
    "antialias-smaller": lambda: (_antialiased("bilinear", size=(5, 9)), R(2, 3, 13, 17)),
    "antialias-larger": lambda: (_antialiased("bicubic", size=(26, 30)), R(2, 3, 13, 17)),
    "antialias-scales": lambda: (_antialiased("bicubic", scale_factor=(0.4, 1.7)), R(2, 3, 13, 17)),
    "antialias-corners": lambda: (
        _antialiased("bilinear", size=(1, 9), align_corners=True),
        R(2, 3, 13, 17),
    ),
    "extremes-and-shifts-of-bytes": lambda: (
        _of_bytes,
        torch.tensor([3, 7, 79], dtype=torch.uint8),
        torch.tensor([200, 255, 129], dtype=torch.uint8),
    ),
    "remainders": lambda: (_remainders, torch.arange(-9, 10)),
    "views": lambda: (_each_way, R(3, 4)),
    "rotary-of-complex": lambda: (_Rotated(), R(2, 6, 4)),
    "complex-by-parts": lambda: (_by_their_parts, R(2, 4, 3), R(2, 4, 3)),
    "short-time-fourier": lambda: (_short_time, R(2, 64)),
    "covariances": lambda: (_covariances, R(3, 8), torch.arange(1, 9), torch.rand(8)),
    "places": lambda: (_places, R(3, 4), torch.tensor([[0, -1], [5, 5]]), torch.ones(2, 2)),
    "distances": lambda: (_distances, R(4, 3)),
    "volumes-at-points": lambda: (_at_points, R(2, 2, 4, 3, 5), R(2, 2, 3, 2, 3) * 1.5),
    "images-at-points": lambda: (_at_points, R(2, 2, 4, 3), R(2, 3, 2, 2) * 1.5),
    "whole-numbers": lambda: (
        lambda x, y: (torch.gcd(x, y.T), torch.lcm(x, y.T[0]), torch.gcd(x.int(), y.T.int())),
        torch.randint(-60, 60, (4, 9)),
        torch.randint(-60, 60, (9, 4)),
    ),
    "quantized-by-channel": lambda: (
        lambda x, scale, zero: torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7),
        R(5, 3),
        torch.tensor([0.1, 0.2, 0.5]),
        torch.tensor([0, 3, -2], dtype=torch.int32),
    ),
    "targets-before-the-first-hole": lambda: (
        lambda x, y: (
            functional.multilabel_margin_loss(x, y),
            functional.multilabel_margin_loss(x[0], y[0], reduction="sum"),
            functional.multilabel_margin_loss(x, y, reduction="none"),
        ),
        R(3, 4),
        torch.tensor([[1, 2, -1, 0], [-1, 0, 1, 1], [3, 2, 1, 0]]),
    ),
    "tree": lambda: (
        lambda x, y: {"a": x + y["k"], "b": (x, [y["k"] * 2, None, 3])},
        R(3),
        {"k": R(3)},
    ),
    "not-contiguous": lambda: (lambda x: x.t() @ x, R(3, 4).t()),
    "scalar": lambda: (lambda x: x + 1, torch.tensor(3.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_matches_pytorch(name):
    torch.manual_seed(0)
    compare(*CASES[name]())


@pytest.mark.parametrize("function", [torch.unique, torch.nonzero, torch.bincount])
def test_shapes_that_depend_on_data_are_refused(function):
    with pytest.raises(stepwell.UnsupportedError, match="the shape of its result depends on data"):
        stepwell.compile(Function(function), (torch.arange(4),))


def test_antialiasing_of_integers_is_refused():
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(stepwell.UnsupportedError, match="_upsample_bilinear2d_aa"):
        stepwell.compile(Function(_antialiased("bilinear", size=(5, 4))), (image,))


def _heads(*shapes: tuple[int, ...], dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]


_SEEN = torch.rand(2, 1, 33, 20, generator=torch.Generator().manual_seed(1)) > 0.5
_SEEN[:, :, 3] = False  # a query that may see no key
_ATTENTION = {
    "plain": ({}, [(2, 4, 33, 16), (2, 4, 20, 16), (2, 4, 20, 24)]),
    "three-dimensions": ({}, [(4, 33, 16)] * 3),
    "broadcast-keys": ({}, [(2, 4, 33, 16), (1, 4, 20, 16), (2, 1, 20, 16)]),
    "causal": ({"is_causal": True}, [(2, 4, 33, 16)] * 3),
    "scale": ({"scale": 0.3}, [(2, 4, 33, 16)] * 3),
    "mask": ({"attn_mask": _SEEN}, [(2, 4, 33, 16), (2, 4, 20, 16), (2, 4, 20, 16)]),
    "bias": (
        {"attn_mask": torch.where(_SEEN, 0.5, -torch.inf)},
        [(2, 4, 33, 16), (2, 4, 20, 16), (2, 4, 20, 16)],
    ),
    "grouped": ({"enable_gqa": True}, [(2, 6, 33, 16), (2, 2, 20, 16), (2, 2, 20, 16)]),
    "grouped-mask": (
        {"enable_gqa": True, "attn_mask": _SEEN},
        [(2, 6, 33, 16), (2, 2, 20, 16), (2, 2, 20, 16)],
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
@pytest.mark.parametrize("name", _ATTENTION)
def test_attention_is_one_kernel(name: str, dtype) -> None:
    options, shapes = _ATTENTION[name]
    if dtype == torch.float16 and name == "bias":
        options = {"attn_mask": options["attn_mask"].half()}

    def attention(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, **options)

    executable = compare(attention, *_heads(*shapes, dtype=dtype))
    assert [kernel.strategy for kernel in executable.kernels].count("attention") == 1


def test_product_with_a_lookup_before_it():
    """The kernel of the product adds rows that it looks up, and begins with the lookup."""
    positions, words = nn.Embedding(20, 32), nn.Embedding(128, 48)
    project = nn.Linear(48, 32, bias=False)

    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([positions, words, project])

        def forward(self, ids, at):
            added = positions(at)
            return project(words(ids)) + added

    compare(Embeddings(), torch.randint(128, (2, 12)), torch.randint(20, (2, 12)))
