"""Before the first step: people are told what they wait for, and workers compute as the master would."""

import logging
import pickle

import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle import Invalid
from unstraggle.torch import Coded
from unstraggle.torch.layout import layout_of
from unstraggle.torch.notice import Notice
from unstraggle.torch.replica import Replica

from ..engines.scenarios import until


def test_people_are_told_what_they_wait_for(capsys, caplog):
    quick, slow = Notice(within=600.0), Notice(within=0.0)
    with quick.during("nothing"):
        pass
    with slow.during("8 workers"):
        until(lambda: slow._said)
    with slow.during("again"):  # once is enough
        pass
    assert capsys.readouterr().err == "unstraggle: starting: 8 workers ...\n"
    read = Notice(within=0.0)
    with caplog.at_level(logging.INFO, "unstraggle"), read.during("8 workers"):
        until(lambda: read._said)
    assert caplog.messages == ["Starting: 8 workers ..."] and not capsys.readouterr().err


def test_a_run_says_what_it_starts(monkeypatch, capsys):
    monkeypatch.setattr("unstraggle.torch.coded.Notice", lambda: Notice(within=0.0))
    monkeypatch.setattr("unstraggle.torch.coded.start_master", lambda run, start: until(lambda: "workers" in said()) or start())
    told = []

    def said():
        told.append(capsys.readouterr().err)
        return "".join(told)

    monkeypatch.setattr(Notice, "_say", lambda self, what: print(what, file=__import__("sys").stderr))
    options = {"engine": "virtual", "latency": us.latency.ShiftedExponential(rate=1.0)}
    Coded(nn.Linear(2, 1), nn.MSELoss(), (torch.ones(8, 2), torch.ones(8, 1)), scheme="uncoded(4)", **options).close()
    assert "4 workers for uncoded(4), each with the model and its samples" in said()


def test_workers_have_the_default_type_of_the_master():
    """A script without guard is not imported by workers, nor is what it sets in a function."""
    options = {"engine": "virtual", "latency": us.latency.ShiftedExponential(rate=1.0)}
    data = torch.ones(8, 2), torch.ones(8, 1)
    before = torch.get_default_dtype()
    try:
        with Coded(nn.Linear(2, 1), nn.MSELoss(), data, scheme="uncoded(4)", **options) as run:
            torch.set_default_dtype(torch.float64)
            sent = pickle.dumps(run.problem.share(0, [0]))
        torch.set_default_dtype(torch.float32)
        pickle.loads(sent)._open()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_worker_without_its_gpu_says_so():
    model = nn.Linear(2, 1)
    with pytest.raises(Invalid, match=r"compute on cuda:0, but sees no GPU\. On Ray, ask for one"):
        Replica(model, None, layout_of(model), "cuda:0", master=False).open()
    Replica(model, None, layout_of(model), "cuda:0", master=True).open()
