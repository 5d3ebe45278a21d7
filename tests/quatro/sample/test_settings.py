"""Presets and options, and the sampling.json that keeps settings of one folder apart."""

import pytest

from evals.errors import DataError, UsageError
from quatro.sample.request import SampleRequest
from quatro.sample.settings import SampleSettings, Source, claim_folder
from quatro.types import Sampling
from tests.kit import read_json


def numbers(preset=None, **given):
    return SampleRequest("m", "b", preset=preset, **given).numbers()


@pytest.mark.parametrize(
    ("preset", "given", "expected"),
    [
        (None, {}, (256, Sampling(1.0, 1.0, 0))),
        ("paper", {}, (256, Sampling(1.0, 0.7, 0))),
        ("verl-generation", {}, (256, Sampling(1.0, 0.7, 50))),
        (None, {"top_p": 0.9}, (256, Sampling(1.0, 0.9, 0))),
        ("paper", {"top_p": 0.9, "temperature": 1.0, "max_tokens": 9, "n": 4}, (4, Sampling(1.0, 0.9, 0))),
    ],
)
def test_an_option_wins_over_the_preset(preset, given, expected):
    assert numbers(preset, **given) == expected


@pytest.mark.parametrize(
    ("preset", "given", "said"),
    [
        ("sharp", {}, "paper, verl-generation"),
        (None, {"top_p": 0.0}, "top_p"),
        (None, {"top_p": float("nan")}, "top_p"),
        (None, {"temperature": 0.0}, "temperature"),
        (None, {"temperature": float("inf")}, "temperature"),
        (None, {"n": 0}, "n 0"),
        (None, {"max_tokens": 0}, "n 256, max_tokens 0"),
        (None, {"top_k": -1}, "top_k -1"),
    ],
)
def test_settings_out_of_range_are_refused(preset, given, said):
    with pytest.raises(UsageError, match=said):
        numbers(preset, **given)


def claim(folder, benchmark="toy", *, n=3, sampling=Sampling(), seed=7, template="plain", source=Source("m")):  # noqa: B008
    claim_folder(folder, benchmark, SampleSettings(n, sampling, seed, template, source))


def settings(folder) -> dict:
    return read_json(folder / "sampling.json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sampling": Sampling(top_p=0.7)}, "top_p: 1.0 there, 0.7 here"),
        ({"sampling": Sampling(temperature=0.5)}, "temperature: 1.0 there, 0.5 here"),
        ({"sampling": Sampling(top_k=50)}, "top_k: 0 there, 50 here"),
        ({"sampling": Sampling(max_new_tokens=9)}, "max_tokens: 1024 there, 9 here"),
        ({"sampling": Sampling(stop=("\ndef",))}, r"stop: \[\] there, \['\\ndef'\] here"),
        ({"seed": 8}, "seed: 7 there, 8 here"),
        ({"template": "qwen-boxed"}, "prompt: plain there, qwen-boxed here"),
        ({"source": Source(model="other")}, "model: m there, other here"),
        ({"source": Source(model="m", fingerprint="x")}, "fingerprint: None there, x here"),
        ({"source": Source(model="m", dtype="bfloat16")}, "dtype: None there, bfloat16 here"),
        ({"source": Source(model="m", engine="vllm")}, "engine: transformers there, vllm here"),
    ],
)
def test_other_settings_into_the_same_folder_are_refused(tmp_path, change, named):
    claim(tmp_path)
    before = settings(tmp_path)
    with pytest.raises(UsageError, match=named):
        claim(tmp_path, n=9, **change)
    assert settings(tmp_path) == before


def test_samples_of_unknown_origin_are_not_added_to(tmp_path):
    (tmp_path / "toy.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"no sampling\.json"):
        claim(tmp_path)
    for damaged in ("[1]", "{}"):
        (tmp_path / "sampling.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(DataError, match=r"sampling\.json"):
            claim(tmp_path)


def test_benchmarks_of_one_folder_may_differ_in_template_length_and_stop(tmp_path):
    claim(tmp_path, n=2, sampling=Sampling(max_new_tokens=10))
    claim(tmp_path, "other", n=2, template="qwen-boxed", sampling=Sampling(max_new_tokens=99, stop=("\n",)))
    document = settings(tmp_path)
    assert document["sampling"] == {
        "n": 2,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": None,
        "prompt": None,
        "stop": None,
    }
    assert document["benchmarks"] == {
        "toy": {"n": 2, "max_tokens": 10, "prompt": "plain", "stop": []},
        "other": {"n": 2, "max_tokens": 99, "prompt": "qwen-boxed", "stop": ["\n"]},
    }
    with pytest.raises(UsageError, match="prompt: qwen-boxed there, plain here"):
        claim(tmp_path, "other", sampling=Sampling(max_new_tokens=99, stop=("\n",)))
    with pytest.raises(UsageError, match=r"temperature: 1\.0 there, 0\.5 here"):
        claim(tmp_path, "third", sampling=Sampling(temperature=0.5))
    assert "third" not in settings(tmp_path)["benchmarks"]


@pytest.mark.parametrize("more", [{"system": "be brief"}, {"thinking": "</think>"}])
def test_benchmarks_of_one_folder_may_differ_in_what_few_have(tmp_path, more):
    claim_folder(tmp_path, "one", SampleSettings(3, Sampling(), 7, "plain", Source("m"), **more))
    claim(tmp_path, "other")
    assert {name: more.items() <= one.items() for name, one in settings(tmp_path)["benchmarks"].items()} == {
        "one": True,
        "other": False,
    }
    with pytest.raises(UsageError, match=f"{next(iter(more))}: {next(iter(more.values()))} there, None here"):
        claim(tmp_path, "one")


def test_dtype_and_device_are_recorded_and_a_second_device_is_warned_about(tmp_path, caplog):
    claim(tmp_path, n=1, source=Source("m", dtype="float32", device="cpu"))
    assert (settings(tmp_path)["dtype"], settings(tmp_path)["devices"]) == ("float32", ["cpu"])
    assert caplog.text == ""
    claim(tmp_path, n=2, source=Source("m", dtype="float32", device="cuda (X)"))
    assert settings(tmp_path)["devices"] == ["cpu", "cuda (X)"]
    assert "drawn on cpu, and the rest is drawn on cuda (X)" in caplog.text


def test_what_results_say_about_their_samples_comes_from_this_file(tmp_path):
    from evals.samples.about import about_samples

    claim(tmp_path, n=2, source=Source("m", method="quatro delta=0.01"))
    about = about_samples([tmp_path / "toy.jsonl"])
    assert (about.model, about.method, about.seed) == ("m", "quatro delta=0.01", 7)
    assert (about.sampling.n, about.sampling.max_tokens, about.sampling.prompt) == (2, 1024, "plain")
    assert about.sampling.stop == []
