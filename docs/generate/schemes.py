"""What the catalogue cannot compute: the example of each public scheme, and its rule as a formula.

A new scheme needs one entry here; `tests/house/test_docs_generated.py` fails without.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstraggle import Code, parse_code

N = 12
"""Workers of all examples."""

P = tuple(round(0.1 + 0.05 * worker, 2) for worker in range(N))
"""Straggle probabilities of the approximate examples: workers that differ, as in [C]."""

GROUPS = {
    "one": "Exact, one message a worker",
    "several": "Exact, several messages a worker",
    "join": "Joining codes",
    "change": "Changing codes",
    "approximate": "Approximate",
}


@dataclass(frozen=True)
class Entry:
    """A scheme in the catalogue.

    example: an expression, in which {p} stands for straggle probabilities. sent, decoded: the rule, in the letters of the page.
    limit: a few words beside its name in the overview. note: a sentence on how to read its numbers.
    """

    name: str
    group: str
    example: str
    sent: str
    decoded: str
    limit: str = ""
    note: str = ""

    @property
    def exact(self) -> bool:
        return self.group != "approximate"

    @property
    def shown(self) -> str:
        """The expression as a reader sees it."""
        return self.example.format(p="p")

    @property
    def needs_p(self) -> bool:
        return "{p}" in self.example

    def code(self, p: tuple[float, ...] = P) -> Code:
        """The example, designed for these straggle probabilities where it needs them."""
        return parse_code(self.example.format(p=list(p)))


SPAN = "g = Σ_{i∈A} a_i m_i,  where the weights a solve  Σ_{i∈A} a_i B[i, :] = (1, ..., 1)"

ENTRIES = (
    Entry("uncoded", "one", "uncoded(12)", "m_i = g_i", "g = m_0 + m_1 + ... + m_{n-1}"),
    Entry(
        "fractional_repetition",
        "one",
        "fractional_repetition(12, s=2)",
        "m_i = Σ_{j∈G(i)} g_j,  G(i) = the s + 1 partitions of group ⌊i / (s + 1)⌋",
        "g = Σ over groups of the first m_i of the group",
    ),
    Entry(
        "cyclic_repetition",
        "one",
        "cyclic_repetition(12, s=2)",
        "m_i = Σ_{t=0..s} B[i, i+t] g_{i+t}  (mod n)",
        f"{SPAN};  any n - s messages do",
    ),
    Entry(
        "reed_solomon",
        "one",
        "reed_solomon(12, s=2)",
        "m_i ∝ F(x_i),  F(x) = Σ_j f_j(x) g_j,  x_i the n-th roots of unity,\n"
        "f_j(x_i) = 0 where worker i lacks partition j,  f_j(0) = 1",
        "g = F(0), interpolated from 1 + deg F messages;  deg F = the most workers that lack a partition",
    ),
    Entry(
        "partial_stragglers",
        "one",
        "partial_stragglers(12, s=2, slowdown=4)",
        "m_i = g_i of an uncoded share u = (s + 1) / (s + slowdown) of the data,\n"
        "then m'_i = Σ_{t=0..s} B[i, i+t] g'_{i+t} of the rest",
        "g = Σ_i m_i (from all) + Σ_{i∈A} a_i m'_i (from any n - s)",
    ),
    Entry(
        "lagrange",
        "one",
        "lagrange(12, load=3)",
        "worker i holds X̃_{i,r} = u_r(x_i),  u_r the polynomial through u_r(y_c) = X_{rb+c},  b = ⌈n / load⌉\n"
        "m_i = Σ_r gradient on X̃_{i,r} = h(x_i),  deg h = 2 (b - 1)",
        "g = Σ_c h(y_c),  h interpolated from any 2 b - 1 messages",
        limit="least squares only",
        note="It encodes the data, so that it works for least squares only.",
    ),
    Entry(
        "uncoded_mmc",
        "several",
        "uncoded_mmc(12, load=3)",
        "m_{i,t} = g_{i+t}  (mod n),  t = 0, ..., load - 1",
        "g = Σ_j the first copy of g_j",
    ),
    Entry(
        "correlated_mmc",
        "several",
        "correlated_mmc(12, load=3, order=2)",
        "m_{i,t} = c_{i+t},  c_a = Σ_{u=0..order-1} B[a, a+u] g_{a+u}  (mod n),  t = 0, ..., load - order",
        "g = Σ_{a∈A} w_a c_a,  where  Σ_{a∈A} w_a B[a, :] = (1, ..., 1);  any n - order + 1 distinct c_a do",
    ),
    Entry(
        "uncorrelated_mmc",
        "several",
        "uncorrelated_mmc(12, load=3, orders=[1, 3])",
        "m_{i,q} = Σ_{t<orders[q]} B_q[i, i+t] g_{i+t}  (mod n),  after orders[q] tasks",
        "g = Σ of weights times messages, as for cyclic_repetition;  any n len(orders) - Σ orders + 1 messages do",
    ),
    Entry(
        "cluster",
        "join",
        "cluster(correlated_mmc(6, load=3, order=2), times=2)",
        "B = diag(B_1, ..., B_P):  each code on workers and data of its own",
        "g = g_1 + ... + g_P,  each decoded by its code",
    ),
    Entry(
        "stack",
        "join",
        "stack(uncoded(12), fractional_repetition(12, s=2), shares=[0.5, 0.5])",
        "the messages of code 1 on share 1 of the data,  then those of code 2 on share 2, ...,  from the same workers",
        "g = g_1 + g_2 + ...,  each decoded by its code",
    ),
    Entry(
        "blocks",
        "join",
        "blocks([1, 1], cyclic_repetition(12, s=1), cyclic_repetition(12, s=3))",
        "the messages of code b hold the coordinates of block b only;  a worker does block 0, then block 1, ...",
        "g = (g[block 0], g[block 1], ...),  each decoded by its code",
    ),
    Entry(
        "hybrid",
        "change",
        "hybrid(cluster(uncorrelated_mmc(3, load=3, orders=[1, 3]), times=4))",
        "as the code,  but the last message of worker i is Σ_j g_j over all that it holds in its cluster",
        "as the code;  where workers hold all of their cluster, one such message completes it",
    ),
    Entry(
        "quantize",
        "change",
        "quantize(fractional_repetition(12, s=2), bits=4, bucket=512)",
        "Q(m_i),  random with  E Q(m) = m  and  E |Q(m) - m|² ≤ ω |m|²",
        "g + noise = Σ_i a_i Q(m_i),  with the weights of the code",
        limit="4 bits",
        note="The time is that of computing: what fewer bytes save depends on the link, see [quantisers](quantizers.md).",
    ),
    Entry(
        "ignore_stragglers",
        "approximate",
        "ignore_stragglers(12, p={p})",
        "m_i = g_i",
        "ĝ = Σ_{i∈A} m_i / (1 - p_i);  without p,  ĝ = Σ_{i∈A} m_i",
    ),
    Entry(
        "bernoulli",
        "approximate",
        "bernoulli(12, load=3, decode='one_step')",
        "m_i = Σ_j B_ij g_j,  B_ij = 1 with probability load / n, else 0",
        'decode="one_step":  ĝ = M / (load |A|) Σ_{i∈A} m_i,  M = n less the idle workers;\ndecode="sum":  ĝ = Σ_{i∈A} m_i',
        note="Charles et al. decode in one step, as in the example. The plain sum counts a partition as often as it is heard.",
    ),
    Entry(
        "erasurehead",
        "approximate",
        "erasurehead(12, s=2)",
        "m_i = Σ_{j∈G(i)} g_j,  as fractional_repetition",
        "ĝ = Σ over the groups that were heard of the mean of their messages",
    ),
    Entry(
        "optimal_decoding",
        "approximate",
        "optimal_decoding(12, degree=3)",
        "m_i = Σ_{j adjacent to i} g_j,  in a regular graph",
        "ĝ = Σ_{i∈A} a_i m_i,  where a minimises  |Σ_{i∈A} a_i B[i, :] - (1, ..., 1)|",
    ),
    Entry(
        "expander",
        "approximate",
        "expander(12, degree=3)",
        "m_i = Σ_{j adjacent to i} g_j / degree,  in a regular graph that expands well",
        "as optimal_decoding;  with p,  ĝ = Σ_{i∈A} m_i / (1 - p_i)",
    ),
    Entry(
        "stochastic",
        "approximate",
        "stochastic(12, p={p}, copies=3, placement='balanced')",
        "m_i = Σ_{j on worker i} g_j / (d_j (1 - p_i)),  d_j = copies of partition j",
        "ĝ = Σ_{i∈A} m_i",
    ),
    Entry(
        "optimally_structured",
        "approximate",
        "optimally_structured({p})",
        "m_i = Σ_j W_ij g_j / (1 - p_i),  Σ_i W_ij = 1,  Σ_j W_ij = k / (δ_i Δ),\n"
        "δ_i = (p_i + gamma ω_i) / (1 - p_i),  Δ = Σ_i 1 / δ_i,  ω_i = 0 without a quantiser",
        "ĝ = Σ_{i∈A} m_i",
        note="For equal workers, as in the picture on the right, it is `ignore_stragglers` with p. Use it where they differ.",
    ),
)
"""One entry a public scheme, in the order of the page."""
