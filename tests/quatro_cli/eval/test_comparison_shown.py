"""What `quatro eval compare` prints: the sides by their names, and below the table what speaks against its numbers."""

import json

from tests.kit import quatro, says


def sides(folder, num_problems, *, names=("B", "A"), boxed=True):
    """Two files with four samples of each problem; the second file's answers have a box or not."""
    files = []
    for side, name in enumerate(names):
        form = "\\boxed{%d}" if boxed or side == 0 else "%d"
        rows = [
            {"benchmark": "toy", "id": str(id), "sample_index": i, "completion": form % (i <= side), "answer": "1"}
            for id in range(num_problems)
            for i in range(4)
        ]
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return files


def compare(*arguments):
    return quatro("eval", "compare", *arguments)


def test_the_sides_are_named_above_the_table(tmp_path):
    files = sides(tmp_path, 10)
    shown = compare(*files, "--k", "1")
    assert shown.stdout.splitlines()[1].split()[4:7] == ["A", "B", "change"]
    assert shown.stderr.splitlines() == [f"A: B ({files[0]})", f"B: A ({files[1]})", "change: B minus A"]


def test_the_sides_are_called_by_their_folders_and_not_by_paths(tmp_path):
    folders = [tmp_path / "base/base-m/samples/T1-p1", tmp_path / "runs/seed=0/samples/T1-p1"]
    for folder, file in zip(folders, sides(tmp_path, 10), strict=True):
        folder.mkdir(parents=True)
        file.rename(folder / "toy.jsonl")
    shown = compare(*folders, "--k", "1", "-o", tmp_path / "c.json")
    says(shown, f"A: base-m ({folders[0]})", f"B: seed=0 ({folders[1]})")
    head = quatro("table", tmp_path / "c.json", "--format", "csv").stdout.splitlines()[0]
    assert "base-m,seed=0,difference" in head
    says(compare(folders[0], folders[0], "--k", "1"), f"A: T1-p1 ({folders[0]})")


def test_p_is_adjusted_for_all_comparisons_of_the_call(tmp_path):
    files = sides(tmp_path, 12)
    shown = compare(*files, "--k", "1,2,4", "-o", tmp_path / "c.json").stdout
    assert "adjusted for the 3 comparisons of this call" in shown
    ps = [(row["p"], row["p_adjusted"]) for row in json.loads((tmp_path / "c.json").read_text())["rows"]]
    smallest = min(p for p, _ in ps)
    assert min(adjusted for _, adjusted in ps) == min(1.0, 3 * smallest)
    third = tmp_path / "third.jsonl"
    third.write_bytes(files[0].read_bytes())
    assert "adjusted for the 6 comparisons of this call" in compare(*files, third, "--k", "1,2,4").stdout


def test_a_side_without_answers_is_named_below_the_table(tmp_path):
    files = sides(tmp_path, 10, boxed=False)
    below = compare(*files, "--k", "1").output.rpartition("change: ")[2]
    assert f"{files[1]}: toy: 40 of 40 graded samples hold no \\boxed answer" in below
