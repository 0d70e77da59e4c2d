"""A block of a vision transformer."""

from typing import Any

import torch
import torch.nn.functional as F


def rule(data: dict[str, Any]) -> Any:
    """Return the output of a block: attention and a perceptron, each after a norm and with a residual connection."""
    x = torch.from_numpy(data["input"])
    w = [torch.from_numpy(data[f"weight_{k}"]) for k in range(12)]  # norm, attention in and out, norm, perceptron
    size, heads, eps = x.shape, int(data["heads"]), float(data["eps"])
    normal = F.layer_norm(x, size[-1:], w[0], w[1], eps).reshape(size[0], -1, size[-1])
    q, k, v = F.linear(normal, w[2], w[3]).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if "positions_0" in data:  # relative positions of rows and columns, of the query before its scaling
        at = torch.arange(size[1])[:, None] - torch.arange(size[1]) + size[1] - 1
        rows, columns = (torch.from_numpy(data[f"positions_{k}"])[at] for k in range(2))
        of = q.unflatten(2, size[1:3])
        bias_h, bias_w = torch.einsum("bnhwd,hkd->bnhwk", of, rows), torch.einsum("bnhwd,wkd->bnhwk", of, columns)
        scores = scores + (bias_h[..., :, None] + bias_w[..., None, :]).flatten(4).flatten(2, 3)
    x = x + F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), w[4], w[5]).view(size)
    inner = F.linear(F.layer_norm(x, size[-1:], w[6], w[7], eps), w[8], w[9])
    inner = inner * torch.sigmoid(1.702 * inner) if int(data["quick"]) else F.gelu(inner)
    return (x + F.linear(inner, w[10], w[11])).reshape(-1, size[-1])[data["rows"]].numpy()
