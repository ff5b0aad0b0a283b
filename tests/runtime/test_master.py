"""The master on a sampled clock: what it decodes equals one process, and its times equal the simulator's."""

import threading

import numpy as np
import pytest

from unstraggle import Count, Deadline, Invalid, Master, NotRecovered, codes, plan, replay, simulate
from unstraggle.blocks import block_slices
from unstraggle.engines import Chaos, Message, Virtual, WorkerFailed
from unstraggle.latency import Bernoulli, Exponential, Heterogeneous, ShiftedExponential
from unstraggle.problems import LeastSquares, Logistic
from unstraggle.runtime.events import Joined, Lost
from unstraggle.runtime.gather import Gather, known_weights
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.sums import Pass, weighted_sum
from unstraggle.testing import BrokenEngine, check_engine

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example
from ..problems import Constant, least_squares

LATENCY = ShiftedExponential(rate=1.0, shift=0.1)


def virtual(problem):
    return Virtual(problem, LATENCY, rng=0)


@pytest.mark.parametrize("expression", [*EXAMPLES, *APPROXIMATE_EXAMPLES])
def test_every_code(expression):
    check_engine(virtual, [example(expression)], rounds=2, samples=100)


def test_a_broken_engine_is_found():
    class Wrong(Virtual):
        def _payload(self, message):
            return 1.0001 * super()._payload(message)

    with pytest.raises(BrokenEngine, match="relative error"):
        check_engine(lambda problem: Wrong(problem, LATENCY, rng=0))


@pytest.mark.parametrize("expression", EXAMPLES)
def test_rounds_take_the_time_that_is_simulated(expression):
    """The same draws through the simulator, the replay and the master: the same times and messages."""
    code, problem = example(expression), least_squares(example(expression), samples=100)
    latency = Exponential(rate=1.0)
    arrivals = np.concatenate([latency.sample(code, 1, rng) for rng in [np.random.default_rng(5)] for _ in range(20)])
    expected = replay(code, arrivals, by="rule" if code.decoder.rule else "span")
    with Master(code, Virtual(problem, latency, rng=5)) as master:
        estimates = [master.gradient(np.zeros(24)) for _ in range(20)]
    np.testing.assert_allclose([estimate.wait for estimate in estimates], expected.time.values, rtol=1e-12)
    np.testing.assert_array_equal([estimate.messages for estimate in estimates], expected.messages.values)


def test_an_unbiased_code_is_unbiased_with_the_promised_error():
    p = np.array([0.2, 0.4, 0.1, 0.5])
    code = codes.optimally_structured(p)
    problem, rounds = least_squares(code, dim=3), 4000
    truth = problem.gradient(np.ones(3))
    with Master(code, Virtual(problem, Heterogeneous([Bernoulli(q) for q in p]), rng=1), Deadline(10.0)) as master:
        drawn = np.array([master.gradient(np.ones(3)).gradient for _ in range(rounds)])
    z = (drawn.mean(axis=0) - truth) / (drawn.std(axis=0) / np.sqrt(rounds))
    assert np.abs(z).max() < 4
    grads = np.array([problem.grad(np.ones(3), part) for part in range(problem.k)])
    promised = plan.mean_squared_error(code, p, grads).mean_squared_error
    assert ((drawn - truth) ** 2).sum(axis=1).mean() == pytest.approx(promised, rel=0.1)


def test_two_tracks_from_the_same_messages():
    p = [0.1, 0.2, 0.3, 0.4]
    code = plan.two_track(codes.optimally_structured(p), p)
    with Master(code, virtual(least_squares(code)), Deadline(1.0)) as master:
        estimate = master.gradient(np.ones(24))
    ratio = estimate.second / estimate.gradient
    np.testing.assert_allclose(ratio, ratio[0])
    assert 0 < ratio[0] < 1


def test_messages_that_never_arrive_are_asked_for_again_or_end_the_round():
    code = codes.uncoded(3)
    problem = Constant(3)
    never = Bernoulli(0.5)
    with (
        Master(code, Virtual(problem, never, rng=0), on_shortfall="raise") as master,
        pytest.raises(NotRecovered, match="0 messages came damaged"),
    ):
        for _ in range(10):
            master.gradient(np.zeros(8))
    with Master(code, Virtual(problem, never, rng=0), on_shortfall="skip") as master:
        estimates = [master.gradient(np.zeros(8)) for _ in range(20)]
    assert {estimate.skipped for estimate in estimates} == {True, False}
    assert all((estimate.gradient == (0.0 if estimate.skipped else 6.0)).all() for estimate in estimates)
    with Master(code, Virtual(problem, Bernoulli(0.1), rng=0)) as master:
        assert all((master.gradient(np.zeros(8)).gradient == 6.0).all() for _ in range(30))


def test_a_round_in_which_workers_come_and_go_waits_for_them():
    """As when all of them are killed and started again, one after the other: that does not use up the attempts."""
    churn = [event for worker in (0, 1, 2, 0, 1) for event in (Lost(worker, 0.0, returns=True), Joined(worker, 0.0))]

    class Restless(Virtual):
        def next(self, until):
            return [churn.pop(0)] if churn else super().next(until)

    code = codes.uncoded(3)
    with Master(code, Restless(Constant(3), LATENCY, rng=0)) as master:
        estimate = master.gradient(np.zeros(8))
    assert estimate.exact and estimate.lost == (0, 1, 2) and not churn


def test_chaos_of_every_kind_but_kills(caplog):
    code = codes.cyclic_repetition(6, s=2)
    problem = least_squares(code)
    engine = Chaos(virtual(problem), drop=0.1, duplicate=0.2, corrupt=0.1, hold=0.2, hold_seconds=0.5, rng=0)
    seen = np.zeros(3, dtype=int)
    with Master(code, engine, patience=4.0) as master:
        for step in range(300):
            params = np.full(24, step / 100)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-8, atol=1e-8)
            seen += [estimate.damaged, estimate.duplicates, estimate.stale]
    assert (seen > [100, 100, 0]).all()
    assert "still waits" in caplog.text


def test_damaged_messages_are_not_used_even_when_quantised():
    code = codes.quantize(codes.fractional_repetition(4, s=1), bits=8, bucket=512)
    engine = Chaos(virtual(least_squares(code)), corrupt=1.0, rng=0)
    with (
        Master(code, engine) as master,
        pytest.raises(NotRecovered, match=r"has 0 of 4 messages.*[1-9]\d* messages came damaged"),
    ):
        master.gradient(np.zeros(24))


def test_chaos_refuses_what_cannot_be():
    engine = virtual(Constant(2))
    with pytest.raises(Invalid, match="probability drop"):
        Chaos(engine, drop=1.5)
    with pytest.raises(Invalid, match="only processes"):
        Chaos(engine, kill=0.1)


def test_patience_raises_or_approximates():
    code = codes.uncoded(2)
    with Master(code, virtual(Constant(2)), on_shortfall="approximate", patience=2.0) as master:
        for _ in range(6):
            master.gradient(np.zeros(8), delays=np.ones(2))
        estimate = master.gradient(np.zeros(8), delays=np.array([0.5, 100.0]))
        assert (estimate.wait, estimate.got.tolist(), estimate.exact) == (2.0, [True, False], False)
        assert estimate.gradient[0] == 1.0
    with Master(code, virtual(Constant(2)), on_shortfall="raise", patience=2.0) as master:
        for _ in range(6):
            master.gradient(np.zeros(8), delays=np.ones(2))
        with pytest.raises(NotRecovered, match="1 of 2 messages"):
            master.gradient(np.zeros(8), delays=np.array([0.5, 100.0]))


def test_a_round_that_stands_says_whom_it_waits_for(caplog):
    """Without patience: after half a minute while nobody knows better, then after ten times the usual round."""

    class Live(Virtual):
        sampled = False

    with Master(codes.uncoded(2), Live(Constant(2), LATENCY, rng=0)) as master:
        for late in (100.0, *[2.0] * 20, 100.0):
            assert master.gradient(np.zeros(8), delays=np.array([1.0, late])).exact
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "Round 0 still waits after 30 s for workers [1]."
    assert said[2] == "Round 21 still waits after 20 s for workers [1]." and len(said) == 5


def test_policies_are_checked():
    with pytest.raises(Invalid, match="on_shortfall"):
        Master(codes.uncoded(2), virtual(Constant(2)), on_shortfall="hope")


@pytest.mark.parametrize("expression", EXAMPLES)
def test_weights_that_are_known_in_advance_decode(expression):
    """Where a decoder knows its weights, the first copy of each message decodes; else it says that it does not know."""
    code = example(expression)
    known = known_weights(code)
    if known is None:
        return
    weights, ids = known
    _, first = np.unique(ids, return_index=True)
    rows = np.zeros(code.k)
    for part in code.decoder.parts():
        chosen = np.intersect1d(part.messages, first)
        local = np.searchsorted(part.messages, chosen)
        np.testing.assert_allclose(weights[0, chosen] @ part.decoder.rows[local], part.decoder.target, atol=1e-9)
        rows += 1
    assert rows.any()


def test_which_codes_know_their_weights():
    knowing = (
        codes.uncoded(4),
        codes.fractional_repetition(6, s=2),
        codes.uncoded_mmc(4, load=2),
        codes.optimally_structured([0.1, 0.2]),
    )
    assert all(known_weights(code) is not None for code in knowing)
    assert known_weights(codes.cyclic_repetition(5, s=2)) is None
    assert known_weights(codes.quantize(codes.fractional_repetition(6, s=2), bits=8, bucket=512)) is None


@pytest.mark.parametrize("length", [5, 20_000, WORTH + 3])
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_weighted_sums(length, kind, count):
    rng = np.random.default_rng(count)
    vectors = [rng.standard_normal(length).astype(kind) for _ in range(count)]
    weights = rng.standard_normal(count)
    expected = sum(w * v.astype(float) for w, v in zip(weights, vectors, strict=True))
    np.testing.assert_allclose(weighted_sum(np.empty(length, kind), weights, vectors), expected, rtol=1e-5, atol=1e-6)
    total = np.ones(length)
    weighted_sum(total, weights, vectors, fresh=False)
    np.testing.assert_allclose(total, 1 + expected, rtol=1e-12, atol=1e-12)


def test_sums_in_float64_of_numbers_that_float32_would_lose():
    big, one = np.full(20_000, 1e8, np.float32), np.ones(20_000, np.float32)
    out = weighted_sum(np.empty(20_000, np.float32), [1.0, 1.0, -1.0], [big, one, big])
    assert (out == 1.0).all()


def test_logistic_gradients_are_those_of_the_loss():
    problem = Logistic.random(codes.uncoded(3), dim=5, samples=50, ridge=0.1)
    at, shift = np.linspace(-1, 1, 5), 1e-6
    slopes = [(problem.loss(at + shift * e) - problem.loss(at - shift * e)) / (2 * shift) for e in np.eye(5)]
    np.testing.assert_allclose(problem.gradient(at) / 50, slopes, rtol=1e-6, atol=1e-8)
    with pytest.raises(Invalid, match="labels 0 or 1"):
        Logistic.split(np.ones((2, 2)), [0, 2], parts=2)


@pytest.mark.parametrize("dim", [50, 20_000])
@pytest.mark.parametrize(
    "code",
    [
        codes.uncoded(11),
        codes.fractional_repetition(12, s=2),
        codes.uncoded_mmc(6, load=2),
        codes.cyclic_repetition(6, s=2),
        codes.ignore_stragglers(7, p=0.3),
        codes.blocks([1, 1], codes.uncoded(9), codes.fractional_repetition(9, s=2)),
    ],
    ids=lambda code: code.name,
)
def test_sums_do_not_depend_on_the_order_of_arrival(code, dim):
    """To the bit, in float32. Of copies any may come first; without two of its messages a sum is another one."""
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((code.k, dim)).astype("f4")
    slices = block_slices(dim, code.blocks)
    payloads = [
        (code.messages.coef[[m]] @ partials[:, slices[block]]).astype("f4")[0] for m, block in enumerate(code.messages.block)
    ]
    gather, found = Gather(code, dim, np.dtype("f4")), []
    some = np.arange(len(payloads)) if code.decoder.rule else np.arange(2, len(payloads))
    for _ in range(20):
        gather.clear()
        for m in rng.permutation(some):
            gather.add([Message(int(code.messages.worker[m]), int(m), 0, 0.0, payloads[m].view(np.uint8))])
        got = np.isin(np.arange(len(payloads)), some)
        found.append(gather.finish(code.decoder.decode(got).weights).tobytes())
    assert len(set(found)) == 1
    decoded = np.frombuffer(found[0], "f4")
    if code.decoder.rule:
        np.testing.assert_allclose(decoded, partials.sum(axis=0), rtol=1e-4, atol=1e-4)


def test_gather_refuses_messages_of_others_and_of_other_sizes():
    gather = Gather(codes.uncoded(2), 4, np.dtype("f8"))
    with pytest.raises(Invalid, match="no message 1 of worker 0"):
        gather.check(Message(0, 1, 0, 0.0, np.zeros(32, np.uint8)))
    with pytest.raises(Invalid, match="has 32 bytes of payload, but 31 came"):
        gather.check(Message(0, 0, 0, 0.0, np.zeros(31, np.uint8)))
    with pytest.raises(Invalid, match="checksum"):
        gather.check(Message(0, 0, 0, 0.0, np.zeros(32, np.uint8), checksum=5))


def test_count_of_workers_is_ignoring_the_slowest():
    code = codes.ignore_stragglers(4)
    with Master(code, virtual(Constant(4)), Count(3)) as master:
        estimate = master.gradient(np.zeros(8), delays=np.array([1.0, 2.0, 9.0, 3.0]))
    assert (estimate.wait, estimate.gradient[0]) == (3.0, 1 + 2 + 4)
    assert isinstance(least_squares(code), LeastSquares)
    assert simulate(code, LATENCY, Count(3), rounds=10, rng=0, by="span").messages.mean == 3


def test_one_master_per_thread():
    """Two threads in one master mixed up their rounds. Here a task asks for another gradient from a thread of its own."""
    refused = []

    class Asking(Constant):
        def grad(self, params, part, where=slice(None), step=0):
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            return super().grad(params, part, where, step)

    def ask():
        with pytest.raises(Invalid, match="one gradient at a time, but another thread is in one"):
            master.gradient(np.zeros(8))
        refused.append(True)

    with Master(codes.uncoded(2), virtual(Asking(2))) as master:
        assert master.gradient(np.zeros(8)).gradient[0] == 3
        assert master.gradient(np.zeros(8)).exact, "a refused call leaves the master usable"
    assert len(refused) == 4


@pytest.mark.parametrize("code", [codes.uncoded(2), codes.work_conserving(2, load=2, pieces=1, helpers=False)], ids=str)
def test_errors_of_a_problem_are_not_masked(code):
    """A sampled clock said that the stop rule still waits, and not what the problem had raised."""
    master = Master(code, virtual(Constant(2, fails_at=(0, 1))), on_shortfall="raise")
    with master, pytest.raises(WorkerFailed, match="the loss of part 1 cannot be computed"):
        for _ in range(3):
            master.gradient(np.zeros(8), step=0)


@pytest.mark.parametrize("crowded", [False, True])
def test_what_can_be_done_meanwhile_is_done_when_there_is_a_processor_for_it(crowded):
    """While workers compute, or, where they leave none, when the last message has come."""

    class Watched(Virtual):
        def start(self, order):
            seen.append("order")
            super().start(order)

        def next(self, until):
            seen.append("events")
            return super().next(until)

    seen, code = [], codes.uncoded(2)
    engine = Watched(least_squares(code, dim=3), LATENCY, rng=0)
    engine.crowded = crowded
    with Master(code, engine) as master:
        for _ in range(2):
            seen.clear()
            estimate = master.gradient(np.zeros(3), meanwhile=lambda: seen.append("meanwhile"))
            assert estimate.exact and seen.count("meanwhile") == 1 and seen[0] == "order"
            assert seen.index("meanwhile") == (len(seen) - 1 if crowded else 1)


def test_parameters_that_another_thread_writes_are_there_before_workers_have_their_order():
    code, seen = codes.uncoded(2), []
    problem = least_squares(code, dim=3)
    params = np.full(3, np.nan)

    def written():
        params[:] = 1.0
        seen.append("written")
        return True

    class Watched(Virtual):
        def start(self, order):
            seen.append(order.params.tolist())
            super().start(order)

    with Master(code, Watched(problem, LATENCY, rng=0)) as master:
        found = master.gradient(params, finite=Pass(True, written))
        assert seen == ["written", [1.0] * 3]
        np.testing.assert_allclose(found.gradient, problem.gradient(np.ones(3)))
        with pytest.raises(Invalid, match="parameters must be finite"):
            master.gradient(params, finite=Pass(True, lambda: False))
        assert len(seen) == 2, "nobody got an order"
        np.testing.assert_allclose(master.gradient(params).gradient, problem.gradient(np.ones(3)))
