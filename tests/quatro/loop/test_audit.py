"""Of which prompts the realised KL is measured, and what of it."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from quatro.loop.audit import audit, audited_prompts, audits
from quatro.policy.base import Forward
from quatro.processes.world import World


def test_the_audited_prompts_are_drawn_anew_from_the_seed(tiny_config):
    config, other = (tiny_config("audit.prompts=8", f"seed={seed}") for seed in (0, 1))
    drawn = [audited_prompts(config, step, 64) for step in range(1, 201)]
    assert drawn == [audited_prompts(config, step, 64) for step in range(1, 201)]
    assert all(len(set(prompts)) == 8 and prompts == sorted(prompts) for prompts in drawn)
    assert drawn[0] != drawn[1]
    assert drawn[0] != audited_prompts(other, 1, 64)
    # Each of 64 is drawn 25 times in 200 steps, give or take 4.7.
    counts = Counter(prompt for prompts in drawn for prompt in prompts)
    assert sorted(counts) == list(range(64))
    assert min(counts.values()) > 5
    assert max(counts.values()) < 50


def test_an_iteration_with_fewer_prompts_is_audited_whole(tiny_config):
    for size in ("all", "4", "9"):
        assert audited_prompts(tiny_config(f"audit.prompts={size}"), 1, 4) == [0, 1, 2, 3]


class Recorder:
    """A policy of rank ``rank`` that scores by a table, and the world in which ranks ask for one another's values."""

    def __init__(self, new_logp_BT, world):
        self.new_logp_BT, self.world, self.scored = new_logp_BT, world, []

    def score(self, rows):
        # A row is known by its prompt and its place in it, which its advantage tells here.
        found = rows.batch.advantage_B.long()
        self.scored.append(found.tolist())
        return Forward(self.new_logp_BT[found, : rows.batch.mask_BT.shape[1]], None)


def numbered(rows):
    """Rows that carry their number as their advantage."""
    return rows.with_batch(advantage_B=torch.arange(len(rows), dtype=torch.float64))


def audited(config, rows, new_logp_BT, world=None):
    policy = Recorder(new_logp_BT, world or World())
    it = SimpleNamespace(
        step=1,
        progress=SimpleNamespace(old_logp_BT=rows.batch.old_logp_BT),
        learnt=range(4),
    )
    return audits(it, rows, config.method, SimpleNamespace(config=config, policy=policy)), policy


@pytest.fixture
def moved(ragged_rows):
    """Twelve rows of four prompts, and what the new policy says of their tokens."""
    rows = numbered(ragged_rows)
    generator = torch.Generator().manual_seed(1)
    noise_BT = 0.1 * torch.randn(rows.batch.mask_BT.shape, generator=generator)
    return rows, torch.where(rows.batch.mask_BT, rows.batch.old_logp_BT + noise_BT, 0.0)


def test_a_sample_is_what_an_audit_of_its_prompts_alone_measures(tiny_config, moved):
    rows, new_logp_BT = moved
    config = tiny_config("audit.prompts=2")
    chosen = audited_prompts(config, 1, 4)
    found, policy = audited(config, rows, new_logp_BT)
    index = torch.tensor([row for row in range(12) if int(rows.batch.group_B[row]) in chosen])
    assert sorted(policy.scored[0]) == index.tolist()  # and no row of another prompt
    alone = rows.select(index)
    width = alone.batch.mask_BT.shape[1]
    assert found == audit(new_logp_BT[index, :width], alone.batch, config.method.kl_radius)
    assert found["kl/new_old_se"] > 0
    every, _ = audited(tiny_config("audit=true"), rows, new_logp_BT)
    assert every == audit(new_logp_BT, rows.batch, config.method.kl_radius)
    assert audited(tiny_config("audit=false"), rows, new_logp_BT)[0] == {}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_measure_together_what_one_process_does(tiny_config, moved, size):
    """Two ranks share four prompts; at one audited prompt a rank has none of it, and still takes part."""
    rows, new_logp_BT = moved
    config = tiny_config(f"audit.prompts={size}")
    expected, _ = audited(config, rows, new_logp_BT)
    brought, meeting = [None, None], threading.Barrier(2)

    class Pair(World):
        """One of two ranks, each in a thread of its own."""

        def gather(self, value_B):
            brought[self.rank] = value_B
            meeting.wait(timeout=60)
            together_B = torch.cat(brought)
            meeting.wait(timeout=60)
            return together_B

    def work(rank):
        own = rows.select(torch.nonzero(rows.batch.group_B % 2 == rank).squeeze(-1))
        found, policy = audited(config, own, new_logp_BT, Pair(rank, 2))
        assert len(policy.scored) == 1  # every rank takes part
        return found

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(work, (0, 1)):
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                assert found[name] == pytest.approx(value, rel=1e-9, nan_ok=True), name
