"""What a plan costs, in plain floats: one layer, one stage, one group of ranks at a time.

An independent reading of the equations in ``planner/cost``: it shares no code with it, knows no arrays, and writes out
what the vectorised functions say in closed form. A plan is any object with the records `shape`, `device`, `network`,
`stack`, `layout` and `options`, whose fields are floats.
"""

from dataclasses import dataclass
from math import ceil, floor, gcd, inf, log2, prod, sqrt
from types import SimpleNamespace


@dataclass(frozen=True)
class Cost:
    time: float
    memory: float
    stages: list[float]
    """Bytes held by every stage."""


# ---- precision -------------------------------------------------------------------------------------------------------


def full(p):
    """Whether elements take four bytes: then every number that is kept or sent does at least."""
    return p.device.element == 4.0


def kept(p, size):
    """Bytes of a weight or gradient that a runtime counts as `size` in 16 bit."""
    return 4.0 if full(p) and 0 < size < 4 else size


def sums(p):
    """Whether bf16 gradients have fp32 sums beside them, which are reduced and updated from in place."""
    return p.device.bf16 and p.options.zero < p.stack.fp32_sums_below_zero and not p.options.offload


def gradient_held(p):
    """Bytes of a gradient with its sum."""
    return kept(p, p.stack.gradient_bytes) + (4.0 if sums(p) else 0.0)


def gradient_sent(p):
    """Bytes of what is reduced of it."""
    return 4.0 if sums(p) else kept(p, p.stack.gradient_wire)


def master(p):
    """fp32 weights that are worked with need no copy, unless they are what working copies are gathered from."""
    return 0.0 if full(p) and not p.stack.gathers_working_copy else p.shape.master_bytes


def weights(p):
    """Bytes of a weight that is worked with: frozen ones may be held in the 8 bit that products read."""
    halved = not p.shape.weight_gradient and p.device.low_precision
    each = p.stack.parameter_bytes if p.stack.gathers_working_copy else kept(p, p.stack.parameter_bytes)
    return each / 2.0 if halved else each


def step_bytes(p):
    """Nor is a 16-bit one written."""
    return p.shape.step_bytes - (2.0 if full(p) and not p.stack.gathers_working_copy else 0.0)


def logit(p, size):
    """`size` holds one number of 16 bit."""
    return size + 2.0 if full(p) else size


# ---- ranks and collectives -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    n: float
    inside: float
    reach: float


def group(p, n, stride):
    """Of `n` ranks `stride` apart, as many share a domain as fit into it."""
    inside = floor(p.network.domain / stride)
    return Group(n, min(max(inside, 1.0), n), n * stride)


def nic(p, g):
    """A NIC's rate, less where the group reaches beyond a leaf."""
    return p.network.nic * (p.network.spine if g.reach > p.network.leaf else 1.0)


def in_domain(p, g, rate):
    """A mesh gives a group only the links that lead to its members; a bridge joins two neighbours."""
    if p.network.mesh > 0:
        return min(rate, p.network.pair * max(g.inside - 1.0, 1.0))
    if p.network.bridged > 0 and g.reach <= 2:
        return p.network.pair
    return rate


def pipelined(p, latency, wire):
    """A + x + c sqrt(A x); nothing to move takes no time"""
    if wire == 0:
        return 0.0
    return latency + wire + p.network.pipelining * sqrt(latency * wire)


def ring_latency(p, g):
    """base + (n - k) a_domain + (k - 1) a_nic for k domains"""
    k = g.n / g.inside
    return p.network.base + (g.n - k) * p.network.scaleup_latency + (k - 1.0) * p.network.nic_latency


def gather(p, size, g):
    """All-gather or reduce-scatter: x = (n - 1) / n S / min(B_domain, inside B_nic)."""
    if g.n <= 1:
        return 0.0
    rate = in_domain(p, g, p.network.scaleup)
    if g.n > g.inside:
        rate = min(rate, g.inside * nic(p, g))
    return pipelined(p, ring_latency(p, g), (g.n - 1.0) / g.n * size / rate)


def all_reduce(p, size, g):
    """The faster of ring (2 (n - 1) steps) and tree (up and down log2 k domains)."""
    if g.n <= 1:
        return 0.0
    k = g.n / g.inside
    spans = g.n > g.inside
    inside = in_domain(p, g, p.network.scaleup if spans else p.network.scaleup_reduce)
    out = g.inside * nic(p, g)
    slowest = min(inside, out) if spans else inside
    steps = (g.n - k) * p.network.scaleup_latency + (k - 1.0) * p.network.nic_latency
    ring = pipelined(p, p.network.base + 2.0 * steps, 2.0 * (g.n - 1.0) / g.n * size / slowest)
    hops = (g.inside - 1.0) * p.network.scaleup_latency + (log2(k) if k > 1 else 0.0) * p.network.nic_latency
    near = 2.0 * (g.inside - 1.0) / g.inside / inside
    far = min(k - 1.0, 2.0) / out if k > 1 else 0.0
    tree = pipelined(p, p.network.base + 2.0 * hops, size * max(near, far))
    return min(ring, tree)


def all_to_all(p, size, g):
    """The slower of (inside - 1) / n S in the domain and (n - inside) / n S on the NIC."""
    near = (g.inside - 1.0) / g.n * size / in_domain(p, g, p.network.scaleup)
    far = (g.n - g.inside) / g.n * size / nic(p, g) if g.n > g.inside else 0.0
    return direct(p, g, max(near, far))


def direct(p, g, wire):
    """Everybody to everybody: `wire` seconds of bytes, behind a latency that grows with the ranks."""
    if g.n <= 1:
        return 0.0
    hop = p.network.nic_latency if g.n > g.inside else p.network.scaleup_latency
    return pipelined(p, p.network.base + hop * log2(max(g.n, 2.0)), wire)


def apart(p, parts):
    """How many of so many ranks, or domains, hold an expert of one token: M of G groups of experts, or any."""
    s = p.shape
    k, kept, groups = max(s.experts_per_token, 1.0), s.groups_per_token, s.expert_groups
    if kept >= groups:
        return min(parts * (1.0 - (1.0 - 1.0 / parts) ** k), k)
    if parts < groups:
        ways = prod(max(groups - groups / parts - i, 0.0) / (groups - i) for i in range(int(kept)))
        return min(parts * (1.0 - ways), k)
    each = parts / groups
    return min(kept * each * (1.0 - (1.0 - 1.0 / each) ** (k / kept)), k)


def send(p, size, stride, n):
    """To the next of n ranks: over a pair link, or the NIC where the chain leaves the domain."""
    if n <= 1:
        return 0.0
    if stride * n <= p.network.domain:
        bridge = p.network.bridged <= 0 or stride * n <= 2
        return p.network.scaleup_latency + size / (p.network.pair if bridge else p.network.scaleup)
    rate = p.network.nic * (p.network.spine if stride * n > p.network.leaf else 1.0)
    return p.network.nic_latency + size / rate


def shows(alone, window, share, toll):
    """What communication of `alone` seconds adds beside a window of work.

    Of it a share is sent early enough to hide, never more than the window lasts; while it hides it holds its toll of
    the machine.
    """
    hides = share * alone if share * alone < window else max(window, 0.0)
    return (alone - hides) + toll * hides


# ---- a layer's work --------------------------------------------------------------------------------------------------


def operands(buffer, element, a, b, m, n):
    """Bytes that a product reads: a slab of one operand kept while the other passes, or square tiles of the result."""

    def times(x, y):
        return max(ceil(x / y), 1)

    edge = sqrt(buffer / element)
    slabs = (a + times(a, buffer) * b, b + times(b, buffer) * a)
    return min(*slabs, times(n, edge) * a + times(m, edge) * b)


def product(p, m, n, k, groups=1.0, rate=None, written=None):
    """2 m n k / rate (1 + k_half / k) (1 + w (q - 1)), no less than its bytes; an empty product is free."""
    d = p.device
    if m == 0 or n == 0 or k == 0:
        return 0.0
    tiles = ceil(m / 128) * ceil(n / 256) * groups
    waves = ceil(tiles / d.compute_units) * d.compute_units / max(tiles, 1.0)
    rate = rate or d.matrix_rate
    ramp = d.inner_half * rate / d.matrix_rate
    seconds = 2.0 * m * n * k / rate * (1.0 + ramp / max(k, 1.0))
    seconds *= 1.0 + d.quantisation * min(waves - 1.0, 3.0)
    e = d.element
    moved = operands(d.buffer, e, e * m * k, e * k * n, m, n) + (written or e) * m * n
    return groups * max(seconds, moved / d.memory_rate)


def trained(p, m, n, k, groups=1.0, rate=None):
    """Forward; and backward: the gradient of the input, and of the weights where they are trained."""
    back = product(p, m, k, n, groups, rate)
    if p.shape.weight_gradient:
        added = p.device.element if p.stack.gathers_working_copy else 2.0 * gradient_held(p)
        back += p.shape.weight_gradient * product(p, k, n, m, groups, rate, added)
    more = 1.0 + p.shape.adapter_flops
    return product(p, m, n, k, groups, rate) * more, back * more


def plus(*parts):
    return sum(f for f, _ in parts), sum(b for _, b in parts)


def times(part, factor):
    return part[0] * factor, part[1] * factor


def tokens(p):
    return p.layout.micro * p.shape.sequence / p.layout.cp


def shard(p):
    """Ranks that share the tokens outside tensor-parallel regions."""
    return p.layout.tp if p.options.sequence_parallel > 0 else 1.0


def kv_width(p):
    """A rank holds at least one key/value head."""
    heads = p.shape.kv_heads / p.layout.tp
    return (heads if heads > 1.0 else 1.0) * (p.shape.qk_dim + p.shape.v_dim)


def attention_matrices(p):
    """Every product around the attention kernel as (rows, columns, inner)."""
    s, tp, t = p.shape, p.layout.tp, tokens(p)
    queries = s.heads * s.qk_dim / tp
    if s.kv_rank > 0:
        yield t, s.query_rank + s.kv_rank, s.hidden
        yield t, queries, s.query_rank or s.hidden
        yield t, s.kv_up / tp, s.kv_latent
    else:
        yield t, queries + kv_width(p), s.hidden
    yield t, s.hidden, s.heads * s.v_dim / tp


def mlp(p, width):
    """Up (with the gate) and down."""
    t, inner = tokens(p), width / p.layout.tp
    return plus(trained(p, t, (1.0 + p.shape.gated) * inner, p.shape.hidden), trained(p, t, p.shape.hidden, inner))


def copies(p):
    """Token copies that one rank's experts work on."""
    return tokens(p) * p.shape.experts_per_token * p.layout.etp / p.layout.tp * p.stack.expert_imbalance


def experts(p):
    """Grouped products of the experts on a rank, and the router on its share of the tokens."""
    s, cut, d = p.shape, p.layout, p.device
    here = max(s.experts / cut.ep, 1.0)
    rows, inner, rate = copies(p) / here, s.expert_ffn / cut.etp, d.matrix_rate * p.stack.grouped_matrix
    return plus(
        trained(p, rows, (1.0 + s.gated) * inner, s.hidden, here, rate),
        trained(p, rows, s.hidden, inner, here, rate),
        trained(p, tokens(p) / cut.tp, s.experts, s.hidden, 1.0, d.matrix_rate_16),
    )


def kernel(p):
    """Fused attention at its own rate, backward 2.5 times the work; else scores as products and passes over memory."""
    s, d, t = p.shape, p.device, tokens(p)
    twice = 1.0 + s.cross_share
    work = 2.0 * t * s.heads * (s.qk_dim + s.v_dim) / p.layout.tp * twice
    if p.stack.fused_attention > 0:
        block = s.text * exchanging(p) / p.layout.cp
        rate = d.attention_rate * p.stack.attention / (1.0 + d.attention_half / block)
        forward = work * (s.attended + d.window_edge * s.windowed) / rate
        # One exponential a score: beside two products of a head's width forward, beside five backward.
        x, narrow = d.exponentials * p.stack.attention, max(256.0 / (s.qk_dim + s.v_dim), 1.0)
        once, again = (1.0 + x * narrow) / (1.0 + x), (1.0 + 0.4 * x * narrow) / (1.0 + 0.4 * x)
        ramp = 1.0 + d.attention_backward_half / (block + d.attention_half)
        return forward * once, 2.5 * d.attention_backward * ramp * forward * again
    scores = d.element * t * s.sequence * s.heads / p.layout.tp * twice
    whole = work * s.attended_full / d.matrix_rate_16
    return whole + 6.5 * scores / d.memory_rate, 2.0 * whole + 11.0 * scores / d.memory_rate


def vector_bytes(p, moe):
    """Norms, residuals, rotary embedding, activation function, permutation and casts of one layer."""
    s, t, tp, e = p.shape, tokens(p), p.layout.tp, p.device.element
    function = e * (2.0 + s.gated)
    cast = p.device.low_precision * p.stack.low_precision_cast * 4.0
    around = t * 5.0 * e * s.hidden / shard(p)
    total = around + t * 2.0 * e * (s.heads * s.qk_dim / tp + 0.5 * kv_width(p))
    entering = cast * t * s.hidden * (0.5 + 0.5 / shard(p))
    total += entering + cast * t * s.heads * s.v_dim / tp
    if moe < 1:
        inner = s.ffn / tp
        total += (1.0 - moe) * (around + t * function * inner + entering + cast * t * inner)
    if moe > 0:
        inner, c = s.expert_ffn / p.layout.etp, copies(p)
        moved = (4.0 * e * s.hidden + cast * (s.hidden + inner)) * p.stack.routed_vector
        routed = around + c * (moved + function * inner)
        total += moe * (routed + e * t * s.shared_ffn / tp)
    return total


def unfused(p, moe):
    """Seconds of a byte of all copies in kernels of their own."""
    if p.stack.fused_experts and p.device.low_precision:
        return 0.0
    return moe * copies(p) * p.device.element * p.stack.vector / p.device.memory_rate


def clamps(p, moe):
    """Reads and writes of a copy's inner elements: two clamps of a half, a join of both; backward two clamps that read
    twice, and a join.
    """
    inner = p.shape.clamped_experts * p.shape.expert_ffn / p.layout.etp * unfused(p, moe)
    return (2 * 2 + 4) * inner, (2 * 3 + 4) * inner


def biases(p, moe):
    """Of its output elements: a product, a sum, a join; backward a join, and a product and a sum of two gradients.
    With probabilities of two elements' width all but what is given and taken is as wide, and cast at the end.
    """
    out = p.shape.biased_experts * p.shape.hidden * unfused(p, moe)
    if sends_once(p):
        return (2 + 5 + 4 + 3) * out, (3 + 3 + 2 * (4 + 2) + 2) * out
    return (1 + 3 + 2) * out, (2 + 2 * 3) * out


def tensor_parallel(p, moe, beside):
    """Two regions a layer (one, if a mixture has no shared expert); an all-reduce, or a gather and a scatter, while the
    matrix products of each pass run `beside`.
    """
    g = group(p, p.layout.tp, 1.0)
    size = p.device.element * tokens(p) * p.shape.hidden
    sizes = 1.5 if p.device.low_precision else 2.0
    once = sizes * gather(p, size, g) if p.options.sequence_parallel > 0 else all_reduce(p, size, g)
    regions = 2.0 if p.shape.shared_ffn > 0 else 2.0 - moe
    share = p.stack.tp_overlap if p.options.tp_overlap else 0.0
    return tuple(shows(regions * once, seconds, share, p.device.collective_share) for seconds in beside)


def exchanging(p):
    """Context-parallel ranks that exchange heads: one in a ring, all, or those of a domain."""
    if p.options.context_exchanged:
        return p.layout.cp
    return group(p, p.layout.cp, p.layout.tp).inside if p.options.context_layered else 1.0


def ring_steps(p):
    """Further steps of the ring among those that hold other parts of the sequence."""
    return 0.0 if p.options.context_gathered else p.layout.cp / exchanging(p) - 1.0


def context_parallel(p):
    """Keys and values so many times round the ring (twice that backward) beside all but the first step of the kernel;
    before it what ranks exchange, or all that they gather.
    """
    cp, x, steps = p.layout.cp, exchanging(p), ring_steps(p)
    if cp <= 1:
        return 0.0, 0.0
    if p.options.context_gathered:
        once = gather(p, cp * p.device.element * tokens(p) * kv_width(p), group(p, cp, p.layout.tp))
        return once, 2.0 * once
    once = steps * send(p, p.device.element * tokens(p) * kv_width(p), p.layout.tp * x, cp / x)
    beside = times(kernel(p), steps / (cp / x))
    share, toll = p.stack.cp_overlap, p.device.collective_share
    passed = shows(once, beside[0], share, toll), shows(2.0 * once, beside[1], share, toll)
    return plus(passed, (exchanged(p), exchanged(p)) if x > 1 else (0.0, 0.0))


def exchanged(p):
    """Two all-to-alls: queries, keys and values before the kernel, its output behind."""
    s, tp = p.shape, p.layout.tp
    widths = s.heads * s.qk_dim / tp + kv_width(p), s.heads * s.v_dim / tp
    return sum(all_to_all(p, p.device.element * tokens(p) * w, group(p, exchanging(p), tp)) for w in widths)


def joining(p):
    """Every further step of the ring adds what it found: one number read, another read and written in 32 bit."""
    s, tp = p.shape, p.layout.tp
    widths = s.heads * s.v_dim / tp, s.heads * s.qk_dim / tp + kv_width(p)
    each = ring_steps(p) * tokens(p) * (p.device.element + 4.0 + 4.0) / p.device.memory_rate
    return times(widths, each)


def sends_once(p):
    """Whether a fused dispatcher is used: as asked, else over several domains where the runtime has one."""
    g, asked = group(p, p.layout.ep, p.layout.etp), p.options.dispatcher
    return asked == 2 if asked else p.stack.dispatch_once and g.n > g.inside


def exchange(p):
    """Dispatch and combine of a pass: all-to-all over ep, gather over etp.

    A fused dispatcher sends a token once to a domain, and there once to a rank.
    """
    s, cut = p.shape, p.layout
    g = group(p, cut.ep, cut.etp)
    size = p.device.element * tokens(p) * s.experts_per_token / cut.tp * s.hidden * p.stack.expert_imbalance
    asked = p.options.dispatcher
    if asked == 3:  # All tokens go to all ranks.
        return 2.0 * gather(p, p.device.element * tokens(p) / cut.tp * s.hidden * cut.ep, g)
    once = sends_once(p)
    sent = all_to_all(p, size, g)
    if once:
        token = size / max(s.experts_per_token, 1.0)
        near = (
            token * apart(p, g.n) * (1.0 - 1.0 / g.inside) / (in_domain(p, g, p.network.scaleup) * p.network.dispatch)
        )
        far = token * apart(p, g.n / g.inside) * (1.0 - g.inside / g.n) / (nic(p, g) * p.network.dispatch_nic)
        sent = direct(p, g, max(near, far))
    return 2.0 * (sent + gather(p, size * cut.etp, group(p, cut.etp, 1.0)))


def expert_parallel(p, beside):
    """What shows of exchanges: where they overlap, another micro-batch's opposite pass runs beside them."""
    share = p.stack.ep_overlap if p.options.ep_overlap else 0.0
    return tuple(shows(exchange(p), each, share, p.device.collective_share) for each in reversed(beside))


def dequantised(p, moe):
    """Before either pass quantised weights are read, and written in 16 bit."""
    s, cut = p.shape, p.layout
    if not s.quantised:
        return 0.0, 0.0
    block = (s.attention_parameters + (1.0 - moe) * s.mlp_parameters + moe * s.shared_parameters) / cut.tp
    block += moe * s.experts * s.expert_parameters / (cut.ep * cut.etp)
    once = (s.frozen_bytes + 2.0) * block * p.stack.vector / p.device.memory_rate
    return once, once


def launched(p, moe):
    """Seconds that the host takes to launch one forward pass."""
    around_the_ring = 5.0 * ring_steps(p)  # kernel, copy, send, receive, correction
    st = p.stack
    return (st.kernels_per_layer + around_the_ring + moe * st.expert_launches) * p.device.launch


def parts(p, moe):
    """Seconds forward and backward of one layer by cause, `moe` of its MLP a mixture."""
    s, d, st = p.shape, p.device, p.stack
    matrices = times(plus(*(trained(p, *m) for m in attention_matrices(p))), 1.0 + s.cross_share)
    if moe < 1:
        matrices = plus(matrices, times(mlp(p, s.ffn), 1.0 - moe))
    if moe > 0:
        matrices = plus(matrices, times(plus(mlp(p, s.shared_ffn), experts(p)), moe))
    once = vector_bytes(p, moe) * st.vector / d.memory_rate
    vector = plus((once, 2.0 * once), clamps(p, moe), biases(p, moe), dequantised(p, moe))
    found = {
        "matrix": matrices,
        "attention": plus(kernel(p), joining(p)),
        "vector": vector,
        "tp": tensor_parallel(p, moe, matrices),
        "cp": context_parallel(p),
        "ep": times(expert_parallel(p, plus(matrices, kernel(p), vector)), moe),
    }
    forward, backward = plus(*found.values())
    floor_ = launched(p, moe)
    host = st.layer_overhead + (st.tp_host if p.layout.tp > 1 else 0.0)
    late = max(floor_ - forward, 0.0) + host, max(1.6 * floor_ - backward, 0.0) + 2.0 * host
    return {**found, "launch": late}


def as_profiled(p):
    """The plan that a profile timed: its degree, nothing else cut or hidden, on the machine as it stands."""
    m = p.measured
    layout = SimpleNamespace(**{**vars(p.layout), "tp": m.times.tp, "cp": 1.0, "ep": 1.0, "etp": 1.0})
    how = {"sequence_parallel": m.times.sequence_parallel, "tp_overlap": 0.0}
    options = SimpleNamespace(**{**vars(p.options), **how})
    machine = {"device": m.device, "network": m.network, "stack": m.stack}
    return SimpleNamespace(**{**vars(p), **machine, "layout": layout, "options": options, "measured": None})


def timed(p):
    """Causes that a profile's layer times hold."""
    return ("matrix", "attention", "vector", "launch") + (("tp",) if p.measured.times.communication else ())


def over(measured, modelled):
    """Measured over modelled time; 1 where nothing was measured."""
    return measured / modelled if measured > 0 and modelled > 0 else 1.0


def factors(p):
    """Measured over modelled time of a layer's timed causes, forward and backward."""
    if p.measured is None:
        return 1.0, 1.0
    found = parts(as_profiled(p), 0.0)
    ahead, back = (sum(found[name][way] for name in timed(p)) for way in (0, 1))
    return over(p.measured.times.forward, ahead), over(p.measured.times.backward, back)


def passes(p, moe):
    """Seconds forward and backward of one layer, nothing computed again."""
    found, (ahead, back) = parts(p, moe), factors(p)
    if p.measured is not None:
        found.update({name: (found[name][0] * ahead, found[name][1] * back) for name in timed(p)})
    return plus(*found.values())


def dense_mlp_again(p):
    """Seconds of a dense MLP's forward pass: products, norm, residual, function, casts, one tensor-parallel region."""
    s, t, e, tp = p.shape, tokens(p), p.device.element, p.layout.tp
    cast = p.device.low_precision * p.stack.low_precision_cast * 4.0 * t
    moved = t * 5.0 * e * s.hidden / shard(p) + t * e * (2.0 + s.gated) * s.ffn / tp
    moved += cast * (s.hidden * (0.5 + 0.5 / shard(p)) + s.ffn / tp)
    products = mlp(p, s.ffn)
    g, size = group(p, tp, 1.0), e * t * s.hidden
    sizes = 1.5 if p.device.low_precision else 2.0
    once = sizes * gather(p, size, g) if p.options.sequence_parallel > 0 else all_reduce(p, size, g)
    share = p.stack.tp_overlap if p.options.tp_overlap else 0.0
    shown = shows(once, products[0], share, p.device.collective_share)
    return products[0] + moved * p.stack.vector / p.device.memory_rate + shown


def mixture_again(p):
    """Seconds of a mixture's forward pass: products, what moves copies, a region of shared experts, both exchanges."""
    s, d = p.shape, p.device
    matrices = plus(mlp(p, s.shared_ffn), experts(p))[0]
    attention_alone = SimpleNamespace(**{**vars(p), "shape": SimpleNamespace(**{**vars(s), "ffn": 0.0})})
    norm = tokens(p) * 5.0 * d.element * s.hidden / shard(p)
    entering = d.low_precision * p.stack.low_precision_cast * 4.0 * tokens(p) * s.hidden * (0.5 + 0.5 / shard(p))
    moved = vector_bytes(p, 1.0) - (vector_bytes(attention_alone, 0.0) - norm - entering)
    seconds = matrices + moved * p.stack.vector / d.memory_rate + clamps(p, 1.0)[0] + biases(p, 1.0)[0] + exchange(p)
    if s.shared_ffn > 0:
        g, size = group(p, p.layout.tp, 1.0), d.element * tokens(p) * s.hidden
        sizes = 1.5 if d.low_precision else 2.0
        once = sizes * gather(p, size, g) if p.options.sequence_parallel > 0 else all_reduce(p, size, g)
        share = p.stack.tp_overlap if p.options.tp_overlap else 0.0
        seconds += shows(once, matrices, share, d.collective_share)
    return seconds


def modules_again(p, moe):
    """Seconds to compute modules again and what the host launches for it: a checkpoint's 12 calls and its kernels."""
    s, d, st, t, o = p.shape, p.device, p.stack, tokens(p), p.options
    seconds, launches = 0.0, 0.0
    if o.recompute_latents and s.kv_rank > 0:
        seconds += sum(trained(p, *each)[0] for each in list(attention_matrices(p))[1:3])
        launches += 12 + 6
    if o.recompute_function and moe and not o.recompute_mixture:
        if not st.drops_activation:
            width = moe * s.experts_per_token * s.expert_ffn
            seconds += (1.0 + s.gated) * d.element * t / p.layout.tp * width / d.memory_rate
        seconds += clamps(p, moe)[0]
        launches += moe * (12 + 1)
    if o.recompute_norms:
        norms = (s.kv_rank > 0) + moe
        seconds += norms * 2.0 * d.element * t * s.hidden / shard(p) / d.memory_rate
        launches += norms * (12 + 1)
    if o.recompute_mlp:
        seconds += (1.0 - moe) * dense_mlp_again(p)
        launches += (1.0 - moe) * (12 + 4)
    if o.recompute_mixture and moe:
        seconds += moe * mixture_again(p)
        launches += moe * (12 + st.expert_launches)
    if not seconds:
        return 0.0
    kernels = sum(times[1] for name, times in parts(p, moe).items() if name != "launch")
    host = 1.6 * launched(p, moe)
    return max(kernels + seconds, host + launches * d.launch) - max(kernels, host)


def layer(p, moe):
    """Seconds forward and backward of one layer, with what its policy computes again."""
    s, d, st, t = p.shape, p.device, p.stack, tokens(p)
    found, (ahead, _) = parts(p, moe), factors(p)
    matrices, attention = found["matrix"], kernel(p)
    forward, backward = passes(p, moe)

    dropped = 0.0
    if st.drops_scores:
        dropped += attention[0]
    if st.drops_activation:
        width = (1.0 - moe) * s.ffn + moe * (s.shared_ffn + s.experts_per_token * s.expert_ffn)
        dropped += (1.0 + s.gated) * d.element * t / p.layout.tp * width / d.memory_rate
    if st.drops_norms:
        dropped += 4.0 * d.element * t * s.hidden / shard(p) / d.memory_rate
    if st.drops_linear:
        dropped += st.selective_recompute * matrices[0]
    dropped *= p.options.recompute_selective
    dropped += modules_again(p, moe)
    whole = p.options.recompute_layers
    again = whole * (forward - unread(p, moe) * ahead) + (1.0 - whole) * dropped * ahead
    return forward, backward + again


def unread(p, moe):
    """Seconds of what no gradient reads: a dense MLP's projection down (m x f by f x h), and the residual behind it."""
    s, t = p.shape, tokens(p)
    if not (p.stack.skips_last_product and s.ends_in_product):
        return 0.0
    down = trained(p, t, s.hidden, s.ffn / p.layout.tp)[0]
    residual = 3.0 * p.device.element * t * s.hidden / shard(p) * p.stack.vector / p.device.memory_rate
    return (1.0 - moe) * (down + residual)


def end(p, seconds, modelled, forward, backward):
    """An end's seconds, scaled as the profile's are to the model's own."""
    if p.measured is None:
        return seconds
    profiled = modelled(as_profiled(p))
    times = p.measured.times
    return (
        seconds[0] * over(getattr(times, forward), profiled[0]),
        seconds[1] * over(getattr(times, backward), profiled[1]),
    )


def embedding(p):
    seconds = 3.0 * p.device.element * tokens(p) * p.shape.hidden / shard(p) * p.stack.vector / p.device.memory_rate
    return seconds, 2.0 * seconds


def tower(p):
    """Seconds of a frozen tower on all images of a micro-batch, in 16 bit, and the bytes of the layer it is at."""
    s, d = p.shape, p.device
    if not s.tower_parameters:
        return 0.0, 0.0
    t, h, f, seen = p.layout.micro * s.images * s.tower_patches, s.tower_hidden, s.tower_inner, s.tower_attended
    matrices = [(h, 3.0 * h), (h, h), (h, f + s.tower_gated * f), (f, h)]
    layer = sum(product(p, t, n, k, rate=d.matrix_rate_16) for k, n in matrices)
    layer += 4.0 * t * seen * h / (d.attention_rate * p.stack.attention) * (1.0 + d.attention_half / (2.0 * seen))
    # Two norms and residuals of 5 elements each way, and what the function reads and writes.
    layer += d.element * t * (10.0 * h + (2.0 + s.tower_gated) * f) * p.stack.vector / d.memory_rate
    joined = 2.0 * p.layout.micro * s.images * s.tower_joining / d.matrix_rate_16
    return s.tower_layers * layer + joined, 2.0 * t * (6.0 * h + (2.0 + s.tower_gated) * f)


def head(p):
    """Logits, and passes over them for the loss."""
    width = p.shape.vocab / p.layout.tp
    passes = tokens(p) * width * (p.stack.loss_traffic / 2.0 + 2.0 * (p.device.element - 2.0)) / p.device.memory_rate
    once = plus(trained(p, tokens(p), width, p.shape.hidden, 1.0, p.device.matrix_rate_16), (passes, passes))
    return times(once, p.shape.losses)


# ---- stages ----------------------------------------------------------------------------------------------------------


def by_cost(count, pp, head):
    """A stage is dealt layers until all cost dealt exceeds its share and those of the stages before it."""
    dealt, stage = [0] * pp, 0
    for layer in range(1, count + 1):
        dealt[stage] += 1
        if layer > (stage + 1) * ((count + head) / pp):
            stage += 1
    return dealt


def beside_head(equal, head, least):
    """Every deal in which the last stage holds so many layers or fewer than equally; the one whose slowest stage is
    fastest, and of several the one that takes least from the last.
    """
    found = []
    for last in range(min(least, equal[-1]), equal[-1] + 1):
        rest = sum(equal) - last
        others = [ceil(rest / (len(equal) - 1))] * (len(equal) - 1)
        for stage in [0, *range(len(others) - 1, 0, -1)][: sum(others) - rest]:
            others[stage] -= 1
        found.append([*others, last])
    return min(found, key=lambda deal: (max(*deal[:-1], deal[-1] + head), -deal[-1]))


def deal(p):
    """Every stage as a list of its layers, each the mixture's share in it."""
    vpp, count, leading = int(p.layout.vpp), int(p.shape.layers), int(p.shape.leading_dense)
    layers = [0.0] * leading + [p.shape.moe_share] * (count - leading)
    return [[layer for chunk in own for layer in chunk] for own in chunks(layers, dealt(p), vpp)]


def with_head(p):
    """The stage with the head: the last, in a V the first."""
    return int(p.layout.pp) - 1 if p.layout.looped else 0


def dealt(p):
    """How many layers every stage has.

    Layers go to pp vpp chunks as evenly as they can; where some are missing the last stage is short first, then the
    first, then the others from the back.
    """
    pp, vpp, count = int(p.layout.pp), int(p.layout.vpp), int(p.shape.layers)
    if p.shape.head_layers > 0 and pp > 1 and p.layout.looped:
        return by_cost(count, pp, p.shape.head_layers)
    found = [ceil(count / (pp * vpp)) * vpp] * pp
    if not p.layout.looped:  # In a V the first stage has both ends, and they are short.
        return [found[0] - (sum(found) - count), *found[1:]]
    order = [pp - 1, 0, *range(pp - 2, 0, -1)]
    turn = 0
    while sum(found) > count:
        found[order[turn % pp]] -= 1
        turn += 1
    if p.shape.placed_head > 0 and pp > 1:
        return beside_head(found, p.shape.placed_head, int(vpp * max(p.shape.losses - 1, 1)))
    return found


def chunks(layers, dealt, vpp):
    """The layers of every stage, chunk by chunk, which a model passes in rounds: the first chunk of each stage, then
    the second of each. The first stage is short in its first chunks, every other in its last.
    """
    layers, stages = list(layers), [[] for _ in dealt]
    for turn in range(vpp):
        for i, n in enumerate(dealt):
            longer = turn >= vpp - n % vpp if i == 0 else turn < n % vpp
            stages[i].append([layers.pop(0) for _ in range(n // vpp + longer)])
    return stages


def held(p, stages):
    """Parameters of every stage on one rank as (dense, experts), before data-parallel ranks share them."""
    s, cut = p.shape, p.layout
    found = []
    for i, layers in enumerate(stages):
        dense = spread = 0.0
        for moe in layers:
            dense += s.attention_parameters + (1.0 - moe) * s.mlp_parameters + moe * s.shared_parameters
            spread += moe * s.experts * s.expert_parameters
        if s.orthogonal and p.options.zero >= 1:  # No matrix is cut over the ranks that share a copy.
            one, other = (shards(p, g) for g in replicas(p))
            dense = max(dense, one * s.largest_matrix) if dense else 0.0
            spread = max(spread, other * s.largest_expert_matrix * cut.ep) if spread else 0.0
        if i == 0:
            dense += s.embedding_parameters
        if i == with_head(p):
            dense += s.final_parameters + (0.0 if s.tied and i == 0 else s.head_parameters)
        found.append((dense / cut.tp, spread / (cut.ep * cut.etp)))
    return found


def replicas(p):
    """Ranks that hold the same dense parameters, and the same experts."""
    cut = p.layout
    apart = cut.pp if p.options.pp_inner > 0 else 1.0
    inner, outer = group(p, cut.cp, cut.tp), group(p, cut.dp, cut.tp * cut.cp * apart)
    dense = Group(inner.n * outer.n, inner.inside * outer.inside, max(inner.reach, outer.reach))
    width = cut.ep * cut.etp
    return dense, group(p, max(cut.tp * cut.cp * cut.dp / width, 1.0), width * apart)


def shards(p, g):
    """Ranks that share one copy: all, or as many of so many domains as leave every copy with the same number."""
    domains = p.options.zero_nodes
    if domains <= 1:
        return float(gcd(int(g.inside), int(g.n))) if domains else g.n
    joined = SimpleNamespace(**{**vars(p), "network": SimpleNamespace(domain=domains * p.network.domain)})
    near = next(near for far, near in zip(replicas(p), replicas(joined), strict=True) if far == g)
    return float(gcd(int(near.inside), int(g.n)))


def summed_whole(p):
    """Sharded states of a runtime that all-reduces gradients all the same, and gathers after the update."""
    return p.stack.reduces_whole and p.options.zero == 1


def whole_after(p):
    """The same by one call after the passes, where buckets count no parameters."""
    return summed_whole(p) and not p.stack.bucket_parameters


def call_count(p, parameters, layers):
    """Calls of a reduction and of a gather: one a layer from ZeRO 2 on, else one a bucket. Buckets hold so many bytes,
    a quarter of a layer at least; or so many parameters, where calls overlap. Gathers are cut by the latter alone.
    """
    st, s, cut = p.stack, p.shape, p.layout
    if p.options.zero >= 2:
        return (max(layers, 1.0),) * 2
    if whole_after(p):
        reductions = 1.0
    elif st.bucket_parameters and p.options.dp_overlap:
        each = max(st.bucket_parameters, st.bucket_parameters_per_rank * cut.dp)
        reductions = max(parameters * s.trained / each, 1.0)
    elif st.bucket_bytes:
        mlp = (1.0 - s.moe_share - s.idle_share) * s.mlp_parameters + s.moe_share * s.shared_parameters
        layer = (s.attention_parameters + mlp) / cut.tp
        layer += s.moe_share * s.experts * s.expert_parameters / (cut.ep * cut.etp)
        bucket = max(st.bucket_bytes, p.device.element * layer / 4.0)
        reductions = max(p.device.element * parameters * s.trained / bucket, 1.0)
    else:
        reductions = 1.0
    return reductions, reductions if st.bucket_parameters else 1.0


def reduce_and_gather(p, parameters, g, layers):
    """Gradients: all-reduced, or from ZeRO 1 on scattered, then summed over replicas of shards; parameters gathered.
    And of either the one call that nothing hides: a layer's where it is not known how many there are.
    """
    zero, st = p.options.zero, p.stack
    times, gathers = call_count(p, parameters, layers)
    size = parameters * gradient_sent(p) * p.shape.trained / times
    n = shards(p, g)
    within, across = Group(n, min(g.inside, n), g.reach), Group(g.n / n, max(g.inside / n, 1.0), g.reach)
    if zero < 1 or summed_whole(p):
        reduce = times * all_reduce(p, size, g)
    else:
        reduce = times * (gather(p, size, within) + all_reduce(p, size / n, across))
    gathered = 0.0
    if zero >= 1:
        wire = p.shape.frozen_bytes if p.shape.quantised and zero >= 3 else kept(p, p.stack.parameter_wire)
        moved = parameters * wire * (1.0 if zero >= 3 else p.shape.trained)
        gathered = gathers * gather(p, moved / gathers, within)
        if st.broadcasts_shards and zero == 1 and n > 1:
            gathered = n * gather(p, moved / (n - 1.0), within)
    known = st.bucket_bytes or st.bucket_parameters or zero >= 2
    last = reduce / (times if known else max(layers, 1.0))
    return reduce, gathered, last, gathered / (gathers if gathers > 1 else max(layers, 1.0))


def exposed(p, stages, first):
    """What of reductions and gathers no pass hides; `first` are the forward and backward seconds of the first stage."""
    holds, (dense, spread), layers = held(p, stages), replicas(p), len(stages[0])
    of_dense = reduce_and_gather(p, max(h[0] for h in holds), dense, layers)
    of_experts = reduce_and_gather(p, max(h[1] for h in holds), spread, layers)
    reduce, gathered, last, opening = (a + b for a, b in zip(of_dense, of_experts, strict=True))
    zero, micro_batches = p.options.zero, p.layout.batch / (p.layout.dp * p.layout.micro)
    on = 1.0 if p.options.dp_overlap and not whole_after(p) else 0.0
    beside = on and not summed_whole(p)
    alone = last + (opening if zero >= 3 else 0.0)
    behind = reduce + (gathered if zero >= 3 else 0.0) - alone
    late = alone + shows(behind, p.stack.dp_overlap * first[1], on, p.device.collective_share)
    early = opening + shows(gathered - opening, p.stack.dp_overlap * first[0], beside, p.device.collective_share)
    if zero >= 2:  # Kernels that copy beside nothing: what is gathered read and written, gradients as made and as sent.
        alike = max(h[0] for h in holds) * (shards(p, dense) > 1) + max(h[1] for h in holds) * (shards(p, spread) > 1)
        if p.stack.copies_gradients:
            late += alike * p.shape.trained * (p.device.element + gradient_sent(p)) / p.device.memory_rate
        if p.stack.copies_gathered and zero >= 3:
            wire = p.shape.frozen_bytes if p.shape.quantised else kept(p, p.stack.parameter_wire)
            late, early = (x + 2.0 * alike * wire / p.device.memory_rate for x in (late, early))
    often = zero >= 3 or (zero >= 2 and p.stack.gathers_working_copy > 0)
    return (micro_batches if zero >= 2 else 1.0) * late + (micro_batches if often else 1.0) * early


def iterated(p, layers):
    """Muon on one stage: the products of a rank's matrices, each whole on every tensor-parallel rank, and gathering."""
    s, cut = p.shape, p.layout
    ranks = [shards(p, g) if p.options.zero >= 1 else 1.0 for g in replicas(p)]
    work, own, matrices = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for moe in layers:
        idle = s.idle_share if moe else 0.0
        work[0] += s.attention_orthogonal + (1.0 - moe) * s.mlp_orthogonal + moe * s.shared_orthogonal
        own[0] += s.attention_parameters + (1.0 - moe) * s.mlp_parameters + moe * s.shared_parameters
        matrices[0] += 6.0 - 2.0 * idle
        work[1] += moe * s.experts / cut.ep * s.expert_orthogonal
        own[1] += moe * s.experts / cut.ep * s.expert_parameters
        matrices[1] += moe * s.experts / cut.ep * 2.0
    most = (s.largest_orthogonal, s.largest_matrix), (s.largest_expert_orthogonal, s.largest_expert_matrix)
    found = 0.0
    for i, width in enumerate((cut.tp, cut.etp)):
        if not own[i]:
            continue
        found += max(work[i] / ranks[i], most[i][0]) / p.device.matrix_rate_16
        calls = max(matrices[i] / ranks[i], 1.0)
        size = 4.0 * max(own[i] / ranks[i], most[i][1]) / calls
        found += calls * gather(p, size, group(p, width, 1.0))
    return found


def updated(p, stages):
    """The optimizer's traffic over the largest shard, or over the host link; with Muon's iterations by stage."""
    if p.shape.orthogonal:
        return max(stage_updated(p, stages, i) for i in range(len(stages)))
    dense, spread = replicas(p)
    sharded = p.options.zero >= 1
    most = max(
        d / (shards(p, dense) if sharded else 1.0) + e / (shards(p, spread) if sharded else 1.0)
        for d, e in held(p, stages)
    )
    if p.options.offload > 0:
        return most * p.shape.trained * on_host(p)
    seconds = most * p.shape.trained * step_bytes(p) / p.device.memory_rate
    return seconds if p.measured is None else seconds * updated_here(p)


def updated_here(p):
    """What a profile's update took over the model's own."""
    s, times = p.shape, p.measured.times
    whole = s.embedding_parameters + s.final_parameters + (0.0 if s.tied else s.head_parameters)
    whole += s.layers * (s.attention_parameters + s.mlp_parameters)
    modelled = whole / times.tp * s.trained * step_bytes(p) / p.measured.device.memory_rate
    return over(times.update, modelled)


def on_host(p):
    """Seconds of a parameter whose states are in host memory in part: lanes one after the other, or beside another."""
    away, link = p.options.offload, p.device.host_bandwidth
    lanes = [away * lane / link for lane in (gradient_sent(p), step_bytes(p), kept(p, p.stack.parameter_wire))]
    here = (1.0 - away) * step_bytes(p) / p.device.memory_rate
    if p.measured is not None:
        here *= updated_here(p)
    return max(*lanes, here) if p.options.offload_overlap else sum(lanes) + here


def stage_updated(p, stages, i):
    s, last = p.shape, i == with_head(p)
    ranks = [shards(p, g) if p.options.zero >= 1 else 1.0 for g in replicas(p)]
    dense, spread = held(p, stages)[i]
    ends = s.embedding_parameters * (i == 0)
    ends += last * (s.final_parameters + (0.0 if s.tied and i == 0 else s.head_parameters))
    each = step_bytes(p) / p.device.memory_rate if p.options.offload <= 0 else on_host(p)
    found = (dense / ranks[0] + spread / ranks[1]) * each
    return found + ends / p.layout.tp / ranks[0] * s.outside_step_bytes / p.device.memory_rate + iterated(p, stages[i])


def update(p, stages):
    """The update, and what the host launches for every layer of the first stage and every rank that held a shard."""
    dense, _ = replicas(p)
    sharers = shards(p, dense)
    together = len(stages[0]) * p.stack.gather_launches * sharers * p.device.launch
    return updated(p, stages) + (together if p.options.zero >= 1 and sharers > 1 else 0.0)


def transfer(p):
    """Activations out and gradients back, for every chunk of a stage, beside one layer of each; copies hold nothing."""
    cut = p.layout
    stride = cut.tp * cut.cp if p.options.pp_inner > 0 else cut.tp * cut.cp * cut.dp
    once = send(p, p.device.element * tokens(p) * p.shape.hidden / cut.tp, stride, cut.pp)
    share = p.stack.p2p_overlap if p.options.p2p_overlap else 0.0
    return shows(2.0 * cut.vpp * once, cut.vpp * sum(passes(p, p.shape.moe_share)), share, 0.0)


def hidden_exchange(p, moe):
    """Seconds that a layer takes longer without another micro-batch beside its exchanges."""
    apart = SimpleNamespace(**{**vars(p), "options": SimpleNamespace(**{**vars(p.options), "ep_overlap": 0.0})})
    return sum(plus(*parts(apart, moe).values())) - sum(plus(*parts(p, moe).values()))


def weight_gradients(p, made):
    """Seconds of `made` that a backward pass spends on gradients of weights."""
    frozen = SimpleNamespace(**{**vars(p), "shape": SimpleNamespace(**{**vars(p.shape), "weight_gradient": 0.0})})
    return made(p)[1] - made(frozen)[1]


def idle(p, stages, seconds):
    """What the slowest rank waits where weight gradients are apart (arXiv 2401.10241; tests/test_schedules.py)."""
    moe, pp, sent = p.shape.moe_share, p.layout.pp, transfer(p) / 2.0
    each = {kind: weight_gradients(p, lambda q, kind=kind: parts(q, kind)["matrix"]) for kind in {0.0, moe}}
    apart = [sum(each[kind] for kind in layers) for layers in stages]
    apart[with_head(p)] += weight_gradients(p, head)
    ranks = [(f + sent, b - w + sent, w) for (f, b), w in zip(seconds, apart, strict=True)]
    slowest = max(range(len(stages)), key=lambda i: (sum(seconds[i]), -i))
    _, slow_i, slow_w = ranks[slowest]
    f, i, w = (sum(each) / (pp - 1.0) for each in zip(*(ranks[:slowest] + ranks[slowest + 1 :]), strict=True))
    late = max(sum(ranks[slowest]) - f - i - w, 0.0)
    if p.options.schedule == 1:
        more = pp * max(slow_w - w, 0.0)
        return max((pp - 1) * (f + i - w) - more, (pp - 1) * i - more, (pp - 1) * f) / p.layout.vpp
    if p.options.schedule == 2:
        steps = p.layout.batch / (p.layout.dp * p.layout.micro)
        equal = (pp - 1) * max(i - w, i / 2, f / 2) - (steps - 1) * late
        back = (pp - 1) * (i - slow_i / 2) - pp / 2 * slow_w
        return max(equal, back, pp / 2 * (i - slow_i) + (pp - 0.5) * w - (pp + 1) / 2 * slow_w, 0.0)
    equal = max((pp - 1) * (f + (i - w) / 2), (pp - 1) * (i + (f - w) / 2) - f / 2, (pp - 1) * f)
    return max(equal - 1.25 * pp * late, 0.0)


def waiting(p, moe):
    """Bytes of the gradients of what a layer's products give."""
    s, cut, t = p.shape, p.layout, tokens(p)

    def mlp_gives(width):
        return t * (1.0 + s.gated) * width / cut.tp + (t * s.hidden if width else 0.0)

    found = sum(m * n for m, n, k in attention_matrices(p)) * (1.0 + s.cross_share) + (1.0 - moe) * mlp_gives(s.ffn)
    if moe:
        inner = (1.0 + s.gated) * s.expert_ffn / cut.etp
        routed = copies(p) * (inner + s.hidden) + t / cut.tp * s.experts
        found += moe * (mlp_gives(s.shared_ffn) + routed)
    return p.device.element * found


def apart_held(p, stages, i):
    """Bytes of activations on a rank, and of gradients that wait for W, at the fuller of two moments."""
    pp = p.layout.pp
    kept = sum(stored(p, moe)[1] for moe in stages[i])
    gradients = sum(waiting(p, moe) for moe in stages[i])
    if p.options.schedule == 1:
        head_waits = (pp - 1.0) * p.device.element * tokens(p) * p.shape.vocab / p.layout.tp
        return pp * kept + i / p.layout.vpp * gradients + (head_waits if i == with_head(p) else 0.0)
    if p.options.schedule == 2:
        return max(pp * kept, (pp + i) / 2.0 * kept + i * gradients)
    return (pp + 0.5) * kept


def step_time(p):
    """All micro-batches on the slowest stage, the others' once over vpp; then data parallelism and the update."""
    stages = deal(p)
    priced = {moe: copied(p, moe, layer(p, moe)) for moe in {0.0, p.shape.moe_share}}
    if p.options.ep_overlap:
        # While the pipeline fills and drains nothing is beside exchanges: in pp of a step's micro-batches.
        share = min(p.layout.pp * p.layout.dp * p.layout.micro / p.layout.batch, 1.0) / 2.0
        priced = {moe: plus(each, [share * hidden_exchange(p, moe)] * 2) for moe, each in priced.items()}
    seconds = []
    for i, layers in enumerate(stages):
        parts = [priced[moe] for moe in layers]
        if i == 0:
            parts.append(end(p, embedding(p), embedding, "embedding_forward", "embedding_backward"))
            parts.append((tower(p)[0], 0.0))
        if i == with_head(p):
            parts.append(end(p, head(p), head, "head_forward", "head_backward"))
        seconds.append(plus(*parts))
    whole = [f + b + transfer(p) for f, b in seconds]
    micro_batches = p.layout.batch / (p.layout.dp * p.layout.micro)
    steady = micro_batches * max(whole) + (sum(whole) - max(whole)) / p.layout.vpp
    if p.options.schedule:
        steady = micro_batches * max(whole) + idle(p, stages, seconds)
    nodes = max(p.network.accelerators / min(p.network.domain, 8.0), 1.0)
    stretch = 1.0 + p.stack.jitter * log2(nodes)
    return (steady + exposed(p, stages, seconds[0])) * stretch + update(p, stages) + p.stack.step_overhead


# ---- memory ----------------------------------------------------------------------------------------------------------


def hidden_shard(p):
    return p.layout.tp if p.stack.shards_hidden else shard(p)


def stored(p, moe):
    """Bytes of activations of one layer: everything, what the policy keeps, what it makes again (arXiv 2205.05198)."""
    s, cut, st, t, e = p.shape, p.layout, p.stack, tokens(p), p.device.element
    twice = 1.0 + s.cross_share
    one_byte = bool(p.device.low_precision and st.keeps_cast_inputs and s.weight_gradient)
    norms = 2.0 * e * t * s.hidden / hidden_shard(p)
    inputs_and_masks = ((2.0 if one_byte else 2.0 * e) + 2.0 * s.dropout) * t * s.hidden / hidden_shard(p)
    attention = e * t * (2.0 * s.heads * max(s.qk_dim, s.v_dim) / cut.tp + kv_width(p)) * twice
    if one_byte:
        attention -= t * s.heads * s.v_dim / cut.tp * twice
    scores = 0.0
    if not st.fused_attention:
        scores = (2.0 * e + s.dropout) * t * s.sequence * s.heads / cut.tp * twice
    inner = (1.0 - moe) * t * s.ffn / cut.tp
    inner += moe * (t * s.shared_ffn / cut.tp + copies(p) * s.expert_ffn / cut.etp)
    linear = attention + e * (1.0 + s.gated) * inner + moe * (1.0 if one_byte else e) * copies(p) * s.hidden
    after = (1.0 if one_byte else e) * inner
    everything = norms + inputs_and_masks + linear + after + scores
    if not s.weight_gradient:
        # Autograd keeps what an adapter reads, in 16 bit, and of frozen products nothing.
        block = e * t * s.hidden / hidden_shard(p)
        if not s.reads_input:
            everything -= block
        if not s.reads_mlp_input:
            everything -= block + moe * e * copies(p) * s.hidden
            linear -= moe * e * copies(p) * s.hidden
        if not s.reads_inner:
            everything -= after
            after = 0.0
    remains = everything
    if p.options.recompute_selective:
        remains -= st.drops_scores * scores + st.drops_activation * after + st.drops_norms * norms
        remains -= st.drops_linear * linear / 2.0
        left = 1.0 - st.drops_linear / 2.0
        remains -= left * st.drops_kernel * (1.0 if one_byte else e) * t * s.heads * s.v_dim / cut.tp * twice
        remains += st.unread_outputs * e * t * s.hidden / hidden_shard(p)
    left = 1.0 - st.drops_linear / 2.0 if p.options.recompute_selective else 1.0
    given = 0.0 if p.options.recompute_selective and st.drops_activation else 1.0
    again, norm = 0.0, (1.0 if one_byte else e) * t * s.hidden / hidden_shard(p)
    if p.options.recompute_latents and s.kv_rank:
        heads = s.heads * s.qk_dim / cut.tp + kv_width(p)
        again += left * e * t * max(heads - s.query_rank - s.kv_rank, 0.0)
    if p.options.recompute_function and s.reads_inner and not st.drops_activation:
        again += moe * (1.0 if one_byte else e) * copies(p) * s.expert_ffn / cut.etp
    if p.options.recompute_norms:
        again += norm * (bool(s.kv_rank and s.reads_input) + (moe if s.reads_mlp_input else 0.0))
    if p.options.recompute_mlp:
        dense = t * s.ffn / cut.tp
        again += left * (1.0 - moe) * e * (1.0 + s.gated) * dense
        again += given * (1.0 - moe) * (1.0 if one_byte else e) * dense if s.reads_inner else 0.0
        again += (1.0 - moe) * norm if s.reads_mlp_input else 0.0
    if p.options.recompute_mixture:
        width, one = moe * (t * s.shared_ffn / cut.tp + copies(p) * s.expert_ffn / cut.etp), 1.0 if one_byte else e
        again += left * e * (1.0 + s.gated) * width
        again += given * one * width if s.reads_inner else 0.0
        again += left * moe * one * copies(p) * s.hidden if s.reads_mlp_input else 0.0
        if p.options.recompute_function and s.reads_inner and not st.drops_activation:  # counted above
            again -= moe * one * copies(p) * s.expert_ffn / cut.etp
    remains -= again
    whole = 1.0 if p.options.recompute_offloaded else p.options.recompute_layers
    kept = whole * e * t * s.hidden / hidden_shard(p) + (1.0 - whole) * remains
    return everything, kept, max(everything if p.options.recompute_layers > 0 else 0.0, again)


def hosted(p, moe):
    """Bytes that a layer has in host memory, and those on their way: inputs of modules, or all that is kept."""
    s, cut, o, t, e = p.shape, p.layout, p.options, tokens(p), p.device.element
    kept = stored(p, moe)[1]
    if o.offload_all:
        widest = s.hidden / hidden_shard(p)
        if not (o.recompute_layers or o.recompute_offloaded):
            widest = max(widest, s.ffn / cut.tp, copies(p) * s.expert_ffn / cut.etp / t)
        elif o.recompute_layers < 1 and not o.recompute_offloaded:
            wide = (1.0 - o.recompute_layers) * max(s.ffn / cut.tp, copies(p) * s.expert_ffn / cut.etp / t)
            widest = max(widest, wide)
        return kept, 5.0 * e * t * widest
    one = 1.0 if p.device.low_precision and p.stack.keeps_cast_inputs and s.weight_gradient else e
    latent, twice, hidden = s.kv_rank > 0, 1.0 + s.cross_share, t * s.hidden / hidden_shard(p)
    found = 0.0
    if o.offload_attn_norm and latent:
        found += e * hidden
    if o.offload_qkv_linear and s.reads_input:
        found += (0.0 if o.recompute_norms else one * hidden) if latent else (one + e) * hidden
    if o.offload_core_attn and not (latent and o.recompute_latents):
        found += e * t * (s.heads * max(s.qk_dim, s.v_dim) / cut.tp + kv_width(p)) * twice
    if o.offload_attn_proj:
        found += one * t * s.heads * s.v_dim / cut.tp * twice
    if o.offload_mlp_norm:
        found += moe * e * hidden
    if o.offload_expert_fc1 and s.reads_mlp_input:
        found += moe * one * copies(p) * s.hidden
    if o.offload_moe_act:
        found += moe * e * (1.0 + s.gated) * copies(p) * s.expert_ffn / cut.etp
    found = min(found, kept)
    return found, 2.0 * found


def copied(p, moe, seconds):
    """The passes of a layer with what copying to and from host memory takes beyond them."""
    link = hosted(p, moe)[0] / p.device.host_bandwidth
    return seconds[0], seconds[1] + sum(max(link - alone, 0.0) for alone in passes(p, moe))


def in_flight(p, stage):
    """Micro-batches that a stage holds, all its chunks together: warm-up passes and the one at work.

    1F1B: pp - stage. Interleaved: (2 (pp - stage - 1) + (vpp - 1) pp + 1) / vpp chunk passes.
    """
    cut = p.layout
    if p.options.schedule:
        return cut.pp + (0.5 if p.options.schedule == 3 else 0.0)
    count = cut.pp - stage
    if cut.vpp > 1:
        count = (2.0 * (cut.pp - stage - 1.0) + (cut.vpp - 1.0) * cut.pp + 1.0) / cut.vpp
    return min(count, cut.batch / (cut.dp * cut.micro))


def states(p, dense, spread, ends):
    """Parameters, gradients and optimizer states, each shared from its ZeRO stage on."""
    s, st, zero = p.shape, p.stack, p.options.zero
    groups = replicas(p)

    def share(from_stage):
        if zero < from_stage:
            return dense + spread
        return dense / shards(p, groups[0]) + spread / shards(p, groups[1])

    own_copy = st.gathers_working_copy > 0 and not s.frozen_bytes
    if s.frozen_bytes:
        outside = ends / (shards(p, groups[0]) if zero >= 3 else 1.0)
        total = s.frozen_bytes * share(3) + (2.0 - s.frozen_bytes) * outside
    else:
        total = 0.0 if own_copy and zero >= 3 else weights(p) * share(3)
    total += gradient_held(p) * s.trained * share(2)
    here = 1.0 - p.options.offload
    on_average = s.state_bytes * s.trained + master(p) * (1.0 if own_copy else s.trained)
    in_host = p.options.offload * (on_average + 4.0 * s.trained) * share(1)
    total += here * on_average * share(1)
    total += here * s.outside_state_bytes * ends / (shards(p, groups[0]) if zero >= 1 else 1.0)
    return total, in_host


def memory(p):
    """Bytes held by every stage: what is stored, and the larger of what the loss and a layer's backward pass need."""
    s, cut, st, t = p.shape, p.layout, p.stack, tokens(p)
    stages, moe = deal(p), p.shape.moe_share
    holds = held(p, stages)
    mlp_here = ((1.0 - moe) * s.mlp_parameters + moe * s.shared_parameters) / cut.tp
    experts_here = moe * s.experts * s.expert_parameters / (cut.ep * cut.etp)
    one = s.attention_parameters / cut.tp + mlp_here + experts_here
    unit = max(mlp_here, experts_here) / (2.0 + s.gated) if st.gathers_matrices else one
    found = []
    for i, layers in enumerate(stages):
        away = [hosted(p, m) for m in layers]
        moved = sum(each for each, _ in away) * in_flight(p, i)
        most = max([0.0] + [there for _, there in away])
        stays = sum(stored(p, m)[1] for m in layers) * in_flight(p, i) - moved + min(most, moved)
        if p.options.schedule:
            stays = apart_held(p, stages, i)
        elif p.options.ep_overlap:  # A layer goes forward before the other micro-batch's layer has gone back.
            stays += stored(p, moe)[1] - hosted(p, moe)[0]
        if i == 0:
            stays += in_flight(p, 0) * s.dropout * t * s.hidden / hidden_shard(p)
        if not (p.options.sequence_parallel and p.options.tp_overlap):
            stays += 2.0 * p.device.element * t * s.hidden
        if p.device.low_precision:
            stays += 2.0 * one
        wire = s.frozen_bytes if s.quantised else kept(p, st.parameter_wire)
        if s.quantised:  # A matrix at a time in 16 bit.
            sides = max(s.mlp_parameters, s.shared_parameters) / cut.tp, s.expert_parameters / cut.etp
            stays += 2.0 * max(sides) / (2.0 + s.gated)
        if p.options.zero >= 3:
            stays += 2.0 * wire * unit
        layer = stored(p, moe)[2]
        if p.options.zero >= 2:
            layer += s.trained * (p.device.element + gradient_sent(p)) * unit
        if p.options.dispatcher == 3:
            layer += 2.0 * p.device.element * t / cut.tp * s.hidden * cut.ep
        loss = 0.0
        if i == with_head(p):
            loss = t * s.vocab / cut.tp * logit(p, st.logit_bytes_split if cut.tp > 1 else st.logit_bytes)
            if st.chunked_loss:
                loss = min(loss, 3.0 * p.device.element * t * s.hidden)
            # The other losses wait for that of the model itself, with a number in fp32 for each logit.
            loss += (s.losses - 1) * min(loss, 4.0 * t * s.vocab / cut.tp)
            if p.options.zero >= 3:
                loss += wire * s.head_parameters / cut.tp
        copies_here = 0.0
        if not sums(p):
            groups = replicas(p) if p.options.zero >= 1 else None
            parts = [x / shards(p, groups[k]) if groups else x for k, x in enumerate(holds[i])]
            copies_here = (1.0 - p.options.offload) * st.update_bytes * s.trained * sum(parts)
        live = (stays + max(layer, loss, tower(p)[1] if i == 0 else 0.0)) * st.activation_factor
        outside = s.embedding_parameters * (i == 0)
        if i == with_head(p):
            outside += s.final_parameters + (0.0 if s.tied and i == 0 else s.head_parameters)
        frozen = 2.0 * s.tower_parameters if i == 0 else 0.0
        here, in_host = states(p, *holds[i], outside / cut.tp)
        if in_host + moved - min(most, moved) > p.network.host_memory:
            here = inf
        found.append(here + frozen + live + copies_here + st.resident_bytes)
    return found


def cost(p):
    stages = memory(p)
    return Cost(step_time(p), max(stages), stages)


def plan(grid, take=float):
    """A grid of scalars, or one place of a table of columns, as records of plain floats."""

    def record(figures):
        values = {name: getattr(figures, name) for name in type(figures).__slots__}
        return SimpleNamespace(**{name: float(take(value)) for name, value in values.items() if value is not None})

    names = ("shape", "device", "network", "stack", "layout", "options")
    found = {name: record(getattr(grid, name)) for name in names}
    m = grid.measured
    held = {name: record(getattr(m, name)) for name in ("times", "device", "network", "stack")} if m else None
    return SimpleNamespace(**found, measured=SimpleNamespace(**held) if held else None)
