"""Attention: queries, keys and values with common sizes, masks and heads; no dropout, so nothing here is random."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest


@autotest()
def scaled_dot_product_attention():
    batch, heads, size = random(1, 4).to(int), random(1, 4).to(int), random(1, 9).to(int)
    queries, keys = random(1, 8).to(int), random(1, 8).to(int)
    query = random_tensor(dims=(batch, heads, queries, size))
    key = random_tensor(dims=(batch, heads, keys, size))
    value = random_tensor(dims=(batch, heads, keys, random(1, 9).to(int)))
    mask = random_tensor(dims=(queries, keys), requires_grad=False)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=oneof(mask, nothing()), scale=random(0.1, 1).to(float) | nothing()
    )


@autotest()
def causal_attention():
    batch, length, size = random(1, 4).to(int), random(1, 9).to(int), random(1, 9).to(int)
    query, key, value = (random_tensor(dims=(batch, length, size)) for _ in range(3))
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


@autotest(dtypes=None)
def multi_head_attention():
    heads, length, batch = random(1, 4).to(int), random(1, 6).to(int), random(1, 4).to(int)
    size = heads * random(1, 4).to(int)
    module = torch.nn.MultiheadAttention(size, heads, bias=random_bool(), batch_first=False)
    query = random_tensor(dims=(random(1, 6).to(int), batch, size))
    key = random_tensor(dims=(length, batch, size))
    return module(query, key, key, need_weights=True, average_attn_weights=random_bool() | nothing())


@autotest(dtypes=None)
def transformer_encoder_layer():
    heads = random(1, 3).to(int)
    size = heads * random(1, 4).to(int)
    module = torch.nn.TransformerEncoderLayer(
        size,
        heads,
        dim_feedforward=random(1, 8).to(int),
        dropout=0.0,
        activation=oneof("relu", "gelu"),
        norm_first=random_bool() | nothing(),
    )
    x = random_tensor(ndim=3, dim2=size)
    return module(x)


@autotest(dtypes=None)
def attention_in_half():
    heads, batch, dtype = random(1, 4).to(int), random(1, 4).to(int), random_dtype(["half"])
    size = heads * random(1, 4).to(int)
    x = random_tensor(dims=(random(1, 6).to(int), batch, size), dtype=dtype)
    layer = torch.nn.TransformerEncoderLayer(size, heads, dim_feedforward=4, dropout=0.0, dtype=dtype)
    return torch.nn.MultiheadAttention(size, heads, dtype=dtype)(x, x, x), layer(x)
