"""check_code rejects codes that do not keep their promises: each of these is broken in one way."""

from dataclasses import replace

import numpy as np
import pytest

from unstraggle import Code, Fixed, Invalid, Messages, Need, Span, Tasks, codes
from unstraggle.testing import BrokenCode, check_code


def with_rule(code, rule):
    return replace(code, decoder=Span(code.messages.coef, rule))


def with_coef(code, coef):
    messages = Messages(code.messages.worker, code.messages.after, coef)
    return replace(code, messages=messages, decoder=Span(messages.coef, code.decoder.rule))


def test_threshold_one_too_low():
    code = codes.cyclic_repetition(8, s=3)
    with pytest.raises(BrokenCode, match="the rule is met by messages"):
        check_code(with_rule(code, Need(4, tuple(range(8)))))


def test_threshold_too_low_for_rare_sets_only():
    """99 % of the seven-subsets of example 1 decode; the rest miss a partition."""
    code = codes.uncorrelated_mmc(6, load=3, orders=[2, 3])
    with pytest.raises(BrokenCode, match="the rule is met by messages"):
        check_code(with_rule(code, Need(7, tuple(range(12)))))


def test_rule_forgets_a_cluster():
    code = codes.fractional_repetition(6, s=1)
    broken = replace(code, decoder=Span(code.messages.coef, Need(2, (Need(1, (0, 1)), Need(1, (2, 3))))))
    with pytest.raises(BrokenCode, match="the rule is met by messages"):
        check_code(broken)


def test_coefficient_off():
    code = codes.cyclic_repetition(7, s=2)
    coef = code.messages.coef.toarray()
    coef[3, 4] += 0.1
    with pytest.raises(BrokenCode):
        check_code(with_coef(code, coef))


def test_partition_that_nobody_sends():
    code = codes.uncoded(4)
    coef = np.hstack([np.eye(4), np.zeros((4, 1))])
    with pytest.raises(BrokenCode, match="all messages together"):
        check_code(with_coef(code, coef))


def test_copies_that_differ():
    code = codes.correlated_mmc(6, load=3, order=2)
    rule = Need(5, ((0, 2), (1, 4), (3, 6), (5, 8), (7, 10), (9, 11)))
    with pytest.raises(BrokenCode, match="copies"):
        check_code(with_rule(code, rule))


def test_decoder_uses_what_did_not_arrive():
    class Cheat(Span):
        def weights(self, got):
            return super().weights(np.ones_like(got))

    code = codes.cyclic_repetition(6, s=2)
    with pytest.raises(BrokenCode, match="did not arrive"):
        check_code(replace(code, decoder=Cheat(code.messages.coef, code.decoder.rule)))


def test_decoder_gives_wrong_weights():
    class Wrong(Span):
        def weights(self, got):
            return 1.01 * super().weights(got)

    code = codes.cyclic_repetition(6, s=2)
    with pytest.raises(BrokenCode, match="relative error"):
        check_code(replace(code, decoder=Wrong(code.messages.coef, code.decoder.rule)))


def test_program_that_cannot_be_pickled():
    class Stubborn(Code):
        def program(self, worker):
            program = super().program(worker)
            object.__setattr__(program, "worker", lambda: worker)
            return program

    code = codes.uncoded(3)
    with pytest.raises(BrokenCode, match="pickled"):
        check_code(Stubborn(code.name, code.n, code.tasks, code.messages, code.decoder))


def test_a_biased_code_is_not_unbiased():
    with pytest.raises(BrokenCode, match=r"the mean coefficients at p=0.3 are .* it is biased"):
        check_code(codes.ignore_stragglers(6), p=0.3, unbiased=True)
    with pytest.raises(BrokenCode, match="it is biased"):
        check_code(codes.ignore_stragglers(6, p=0.2), p=0.3, unbiased=True)


def test_an_approximate_decoder_does_not_lie_about_its_error():
    class Boasts(Fixed):
        def residual(self, got):
            return super().residual(got) / 2

    class Reaches(Fixed):
        def _weights(self, got):
            return self.fixed

    code = codes.stochastic(6, p=0.2)
    for kind, lie in ((Boasts, "claims an error of"), (Reaches, "uses messages that did not arrive")):
        with pytest.raises(BrokenCode, match=lie):
            check_code(replace(code, decoder=kind(code.messages.coef, fixed=code.decoder.fixed)))


def test_message_before_its_tasks_cannot_be_built():
    tasks = Tasks([0, 0, 1], [0, 1, 1])
    messages = Messages([0, 1], [1, 1], np.array([[1.0, 1.0], [0, 1.0]]))
    with pytest.raises(Invalid, match="has not computed after 1 tasks"):
        Code("early", 2, tasks, messages, Span(messages.coef))


def test_partition_of_another_worker_cannot_be_built():
    messages = Messages([0, 1], [1, 1], np.array([[1.0, 1.0], [0, 1.0]]))
    with pytest.raises(Invalid, match="has not computed"):
        Code("foreign", 2, Tasks([0, 1], [0, 1]), messages, Span(messages.coef))


def test_rule_about_a_message_that_does_not_exist_cannot_be_built():
    code = codes.uncoded(3)
    with pytest.raises(Invalid, match="names message 3"):
        with_rule(code, Need(1, (3,)))
