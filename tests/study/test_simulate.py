"""The simulator: reproducible, independent of threads and chunks, honest about precision and bad samplers."""

from dataclasses import dataclass

import numpy as np
import pytest

from unstraggle import Deadline, Invalid, Recovered, Sample, codes, replay, simulate
from unstraggle import simulate as simulate_function
from unstraggle.latency import Exponential, ShiftedExponential

LATENCY = ShiftedExponential(rate=2.0, shift=0.1)


def test_results_depend_on_neither_threads_nor_memory(monkeypatch):
    import sys

    module = sys.modules["unstraggle.study.simulation"]
    code = codes.uncoded_mmc(8, load=3)
    one = simulate(code, LATENCY, rounds=20_000, rng=1, threads=1)
    many = simulate(code, LATENCY, rounds=20_000, rng=1, threads=3)
    monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    small = simulate(code, LATENCY, rounds=20_000, rng=1, threads=2)
    for other in (many, small):
        assert np.array_equal(one.time.values, other.time.values)
        assert np.array_equal(one.messages.values, other.messages.values)


def test_equal_seeds_share_draws_between_codes():
    plain = simulate(codes.uncoded(10), LATENCY, rounds=20_000, rng=3)
    coded = simulate(codes.cyclic_repetition(10, s=1), LATENCY, rounds=20_000, rng=3)
    speeds = np.concatenate([LATENCY.draw((8192, 10), g) for g in np.random.default_rng(3).spawn(3)])[:20_000]
    assert np.array_equal(plain.time.values, speeds.max(axis=1))
    assert np.array_equal(coded.time.values, 2 * np.sort(speeds, axis=1)[:, 8])


def test_a_generator_moves_on_and_a_seed_does_not():
    rng = np.random.default_rng(5)
    first, second = (simulate(codes.uncoded(4), LATENCY, rounds=100, rng=rng) for _ in range(2))
    again = simulate(codes.uncoded(4), LATENCY, rounds=100, rng=5)
    assert not np.array_equal(first.time.values, second.time.values)
    assert np.array_equal(first.time.values, again.time.values)


def test_it_stops_when_the_mean_is_known_well_enough():
    result = simulate(codes.uncoded(4), LATENCY, rounds=1_000_000, rng=1, precision=0.01)
    half = (result.time.ci95[1] - result.time.ci95[0]) / 2
    assert len(result) < 1_000_000 and half <= 0.01 * result.time.mean
    assert len(simulate(codes.uncoded(4), LATENCY, rounds=100, rng=1, precision=1e-9)) == 100
    threads = [len(simulate(codes.uncoded(4), LATENCY, rounds=10**6, rng=1, precision=0.002, threads=t)) for t in (1, 3)]
    assert threads[0] == threads[1]


def test_confidence_intervals_cover():
    """The 95 % interval holds the exact mean in about 95 of 100 runs."""
    exact = 0.1 + (1 + 1 / 2 + 1 / 3 + 1 / 4) / 2
    inside = 0
    for seed in range(200):
        low, high = simulate(codes.uncoded(4), LATENCY, rounds=400, rng=seed).time.ci95
        inside += low <= exact <= high
    assert 180 <= inside <= 199


def test_sample_statistics():
    sample = Sample(np.arange(1.0, 101.0))
    assert sample.mean == 50.5 and len(sample) == 100
    assert sample.se == pytest.approx(np.arange(1.0, 101.0).std(ddof=1) / 10)
    assert (sample.quantile(0.0), sample.quantile(1.0)) == (1.0, 100.0)
    assert Sample(np.array([1.0])).se == np.inf
    assert Sample(np.array([1.0, np.inf])).ci95 == (np.inf, np.inf)
    assert Sample(np.array([1.0, np.inf])).to_dict()["mean"] is None


def test_rounds_print_as_a_small_table():
    text = str(simulate(codes.uncoded(4), LATENCY, rounds=100, rng=1))
    assert text.startswith("uncoded(4): 100 rounds, 100 % exact") and len(text.splitlines()) == 4


def test_any_sampler_object_will_do():
    @dataclass
    class Dice:
        def sample(self, code, rounds, rng):
            return rng.integers(1, 7, (rounds, len(code.messages))).astype(float)

    result = simulate(codes.uncoded(3), Dice(), rounds=50_000, rng=1)
    assert result.time.mean == pytest.approx(sum(k * ((k / 6) ** 3 - ((k - 1) / 6) ** 3) for k in range(1, 7)), rel=0.01)


@pytest.mark.parametrize("bad", [np.nan, -1.0])
@pytest.mark.parametrize("rule", ["rule", "span"])
def test_bad_times_are_refused(bad, rule):
    class Broken:
        def sample(self, code, rounds, rng):
            times = np.ones((rounds, len(code.messages)))
            times[rounds // 2, 1] = bad
            return times

    with pytest.raises(Invalid, match=r"times >= 0, but .*Broken.* gave"):
        simulate(codes.uncoded(3), Broken(), rounds=100, by=rule)
    with pytest.raises(Invalid, match="times >= 0"):
        replay(codes.uncoded(3), np.array([[1.0, bad, 2.0]]))


def test_messages_that_never_arrive_leave_the_round_open():
    class Lossy:
        def sample(self, code, rounds, rng):
            times = rng.exponential(size=(rounds, len(code.messages)))
            times[: rounds // 4, 0] = np.inf
            return times

    result = simulate(codes.uncoded(3), Lossy(), rounds=1000, rng=1)
    assert result.exact.mean == 0.75 and np.isinf(result.time.values[:250]).all() and result.time.mean == np.inf
    assert (result.messages.values[:250] == 2).all()
    coded = simulate(codes.cyclic_repetition(3, s=1), Lossy(), rounds=1000, rng=1)
    assert coded.exact.mean == 1.0


def test_other_stop_rules_report_how_often_the_gradient_was_exact():
    result = simulate(codes.uncoded(5), Exponential(rate=1.0), Deadline(2.0), rounds=50_000, rng=2)
    assert result.exact.mean == pytest.approx((1 - np.exp(-2.0)) ** 5, abs=0.01)
    assert result.time.values.max() == 2.0


def test_progress_is_told():
    seen = []
    simulate(codes.uncoded(3), LATENCY, rounds=20_000, rng=0, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(8192, 20_000), (16_384, 20_000), (20_000, 20_000)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rounds": 0}, "rounds >= 1"),
        ({"precision": -1.0}, "precision > 0"),
        ({"by": "luck"}, 'by must be "rule"'),
        ({"sending": "half"}, 'sending must be "all"'),
        ({"sending": "cluster_stop", "stop": Deadline(1.0)}, "needs stop=Recovered"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(Invalid, match=message):
        simulate_function(codes.uncoded(3), LATENCY, **options)


def test_errors_in_threads_reach_the_caller():
    class Failing:
        def sample(self, code, rounds, rng):
            raise RuntimeError("no trace")

    with pytest.raises(RuntimeError, match="no trace"):
        simulate(codes.uncoded(3), Failing(), rounds=100_000, threads=2)


def test_stop_rules_are_values():
    assert Recovered() == Recovered("rule") and hash(Deadline(1.0)) == hash(Deadline(1.0))


@pytest.mark.parametrize("by", ["rule", "span"])
def test_replayed_rounds_go_on_over_chunks_and_pieces(monkeypatch, by):
    import sys

    from unstraggle.latency import Replay

    monkeypatch.setattr(sys.modules["unstraggle.study.simulation"], "CHUNK_BYTES", 30_000)
    trace = np.random.default_rng(1).exponential(size=(20_000, 3)) + 0.1
    result = simulate(codes.uncoded(3), Replay(trace), rounds=25_000, by=by)
    assert np.array_equal(result.time.values, np.concatenate([trace, trace[:5000]]).max(axis=1))
