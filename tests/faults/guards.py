"""The guard against each fault, and how to break it: the tests of the fault must notice (`make test-mutants faults`)."""

# ruff: noqa: E501 (a table: one guard a row)
from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple


class Guard(NamedTuple):
    """In ``file``, ``old`` holds the promise about fault number ``fault``; with ``new`` in its place it is broken."""

    fault: int
    name: str
    file: str
    old: str
    new: str


def tests_by_fault(tests: Path) -> dict[int, list[str]]:
    """The tests of each fault below the folder ``tests``, as pytest names them.

    `test_fault_07_a_flipped_bit` is of fault 7, one that begins with `test_fault_15_and_48` of both.
    """
    found: dict[int, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (leading := re.match(r"test_fault((_and)?_\d\d)+", node.name)):
                for number in re.findall(r"\d\d", leading[0]):
                    found.setdefault(int(number), []).append(f"{path}::{node.name}")
    return found


CHECKPOINT, DIRECTORY = "quatro/runs/checkpoint.py", "quatro/runs/directory.py"
SAVING, READING = "quatro/launch/saving.py", "evals/samples/reading.py"
IDENTITY = "quatro/runs/identity.py"
POOL, FUNCTION, LOCK = "evals/worker_pool.py", "quatro/rewards/function.py", "quatro/runs/status.py"

GUARDS = [
    Guard(1, "the stream of prompts begins anew", SAVING, '        "stream": parts.stream,\n', ""),
    Guard(2, "a folder is a checkpoint", CHECKPOINT, "return (path / MANIFEST).is_file()", "return path.is_dir()"),
    Guard(2, "unfinished checkpoints stay", CHECKPOINT, "shutil.rmtree(path) if path.is_dir() else path.unlink()", "pass"),
    Guard(3, "metrics are not cut back", DIRECTORY, 'self._metrics.truncate(written.get("metrics_bytes", 0))', "pass"),
    Guard(4, "a full disk is not named", "evals/files/whole.py", "is_named = error.filename is not None and error.filename != str(temporary)", "is_named = True"),
    Guard(4, "a bare Exception is nobody's", "quatro/policy/loading.py", "not in (SafetensorError, Exception)", "not in (SafetensorError,)"),
    Guard(5, "folders are not tried", "evals/files/whole.py", "        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))\n        temporary.unlink()\n", "        pass\n"),
    Guard(6, "any broken line is torn", READING, "may_be_torn=is_ours and not ends_in_newline", "may_be_torn=True"),
    Guard(6, "no line is torn", READING, "may_be_torn=is_ours and not ends_in_newline", "may_be_torn=False"),
    Guard(7, "files are compared by size", CHECKPOINT, "if found != files[name]:", 'if found["bytes"] != files[name]["bytes"]:'),
    Guard(7, "the manifest is not hashed", CHECKPOINT, "    if not is_own:\n", "    if False:\n"),
    Guard(8, "extra files are let in", CHECKPOINT, "if name not in files:", "if False:"),
    Guard(8, "a lost newest checkpoint is passed over", CHECKPOINT, "if step is None and (lost := lost_newest(run)) is not None:", "if False:"),
    Guard(9, "other settings are let in", IDENTITY, "    refuse_other_config(run, config, state, name)\n", "    pass\n"),
    Guard(10, "the lock is shared", "evals/files/whole.py", "fcntl.LOCK_EX", "fcntl.LOCK_SH"),
    Guard(11, "steps that are not finite are taken", "quatro/policy/torch_policy.py", "is_finite = ", "is_finite = True or "),
    Guard(11, "checkpoints may hold NaN", CHECKPOINT, "    refuse_non_finite(tensors)\n", ""),
    Guard(12, "equal rewards are told apart", "quatro/dual.py", "mixed_Q = range_Q > 0", "mixed_Q = range_Q >= 0"),
    Guard(13, "errors never end a run", FUNCTION, 'if not grade.is_timeout and self.on_error == "fail":', "if False:"),
    Guard(14, "a hang is an error", POOL, 'Failure("overdue", f"gave no', 'Failure("ended", f"gave no'),
    Guard(15, "one try for a program", "evals/sandbox/pool.py", "_MOST_TRIES = 2", "_MOST_TRIES = 1"),
    Guard(15, "a lost program is wrong", "evals/sandbox/pool.py", 'status="infra_error", detail=f"its', 'status="fail", detail=f"its'),
    Guard(15, "a lost process is a score", FUNCTION, 'detail = f"the process of the reward function {answer.detail}"', 'return [(Grade(0.0), "")] * count'),
    Guard(16, "the first signal ends it", "quatro/processes/stop.py", "        if self.requested:\n            if cause", "        if True:\n            if cause"),
    Guard(17, "all samples are drawn anew", "quatro/sample/benchmark.py", "(prompt.id, index) not in writer.present", "True"),
    Guard(18, "a failed run is never run again", "quatro/sweep/run.py", 'evaluation).status != "done"]', 'evaluation).status not in ("done", "failed")]'),
    Guard(19, "durations by the wall clock", "quatro/loop/position.py", "time.monotonic()", "time.time()"),
    Guard(20, "the locale's encoding", "quatro_cli/app.py", 'stream.reconfigure(encoding="utf-8", errors="backslashreplace")', "pass"),
    Guard(21, "unknown keys are ignored", "quatro/types.py", 'extra="forbid"', 'extra="ignore"'),
    Guard(22, "types are coerced", "quatro/types.py", "strict=True", "strict=False"),
    Guard(23, "delta may be 0", "quatro/methods/quatro.py", "default=0.01,\n        gt=0,", "default=0.01,\n        ge=0,"),
    Guard(24, "one rollout is enough", "quatro/config/model.py", "ge=2", "ge=1"),
    Guard(25, "empty prompts are asked", "evals/benchmarks/problems.py", "if not text.strip():", "if False:"),
    Guard(26, "twice is once", READING, "        if first != (file, number):\n", "        if False:\n"),
    Guard(27, "long prompts pass", "quatro/rollout/prompts.py", "if len(prompt.token_ids) <= limit:", "if True:"),
    Guard(28, "any k will do", "evals/metrics/passk_ucc.py", "    if short is not None:\n", "    if False:\n"),
    Guard(29, "any benchmark will do", READING, "    if found.isdisjoint(wanted):\n", "    if False:\n"),
    Guard(29, "a part is the whole", "evals/samples/about.py", "if usable > len(present):", "if False:"),
    Guard(30, "classes may be named", "quatro/config/yaml_text.py", "if event.tag is not None:", "if False:"),
    Guard(31, "checkpoints are unpickled", CHECKPOINT, "return load_file(self.path / TENSORS)", 'return __import__("torch").load((self.path / TENSORS).open("rb"), weights_only=False)'),
    Guard(32, "names are file names", "evals/files/whole.py", "    if slug and slug == name:\n", "    if True:\n"),
    Guard(33, "a minus is no sign", "evals/files/frames.py", '("=", "+", "-", ', '("=", "+", '),
    Guard(33, "a carriage return stays", "evals/files/frames.py", '.replace("\\r\\n", "\\n").replace("\\r", "\\n")', ""),
    Guard(34, "a backslash is a letter", "evals/tables/characters.toml", """"\\\\" = '\\textbackslash{}'\n""", ""),
    Guard(35, "texts are printed as they are", "evals/text.py", "return (_CONTROL if controls_only else _INVISIBLE).sub(spelled, text)", "return text"),
    Guard(35, "log.txt is written as it comes", DIRECTORY, 'return visible(super().format(record), keep="\\t\\n")', "return super().format(record)"),
    Guard(35, "names of tensors are printed as they are", "quatro/policy/loading.py", '.addFilter(_plain)', ""),
    Guard(36, "CUDA's word is unknown", "evals/errors.py", '        "CUDA error: out of memory",\n', ""),
    Guard(36, "micro-batches stay as large", "quatro/policy/rows.py", "                self._halve(error)\n", "                raise\n"),
    Guard(37, "a closed pipe is an error", "quatro_cli/output.py", "        except BrokenPipeError:\n            _silence(name, stream)\n", ""),
    Guard(38, "threads are not compared", SAVING, '"threads": torch.get_num_threads(), ', ""),
    Guard(39, "an export is written in its place", "quatro/runs/export/folder.py", 'final.with_name(f".{final.name}.{os.getpid()}.tmp")', "final"),
    Guard(40, "no eos will do", "quatro/policy/loading.py", "    if tokenizer.eos_token_id is None:\n", "    if False:\n"),
    Guard(40, "weights are not looked at", "quatro/policy/model_files.py", "        refuse_incomplete(Path(place))\n", "        pass\n"),
    Guard(40, "pipes are waited for", "quatro/policy/model_files.py", "if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):", "if False:"),
    Guard(40, "an index leads anywhere", "quatro/policy/model_files.py", 'if Path(name).is_absolute() or ".." in Path(name).parts:', "if False:"),
    Guard(40, "headers have any size", "quatro/policy/model_files.py", "if length > _MOST_HEADER_BYTES:", "if False:"),
    Guard(40, "tokens are any model's", "quatro/policy/facts.py", "if size is not None and id >= size:", "if False:"),
    Guard(40, "the file chooses a kernel", "quatro/policy/loading.py", "    found._attn_implementation = None  #", "    pass  #"),
    Guard(40, "a damaged generation_config.json is passed over", "quatro/policy/loading.py", "settings = settings_in(name, GENERATION_CONFIG)", "settings: dict[str, Any] = {}"),
    Guard(40, "a generation config is saved as it came", "quatro/policy/loading.py", "    for candidate in (config, sampled):\n", "    return config\n    for candidate in (config, sampled):\n"),
    Guard(41, "a lost rank is any error", "quatro/processes/world.py", "if self.size == 1 or not is_lost(error):", "if True:"),
    Guard(42, "ranks do not agree", "quatro/processes/stop.py", "self._world.largest(request.signal or 0)", "request.signal or 0"),
    Guard(43, "any base will do", SAVING, 'if state["inputs"].get(what) != own', "if False"),
    Guard(44, "engine and policy may differ", "quatro/rollout/probe.py", "if not found <= allowed:", "if False:"),
    Guard(45, "any number of ranks will do", SAVING, "then != world.size", "then < 0"),
    Guard(46, "nobody is waited for", "quatro/sweep/run.py", "            if is_locked(run):\n", "            if False:\n"),
    Guard(47, "JSON ends its element", "evals/report/document.py", '"<>&\\u2028\\u2029"', '"&"'),
    Guard(48, "one start", POOL, "MAX_STARTS = 2", "MAX_STARTS = 1"),
    Guard(49, "the KL so far is forgotten", "quatro/loop/position.py", 'if "budget" in plain:', "if False:"),
    Guard(50, "any number of tokens will do", "quatro/rollout/server.py", "if is_short or (num_tokens or 0) > max_tokens or len(text) > LONGEST_TOKEN * (num_tokens or max_tokens):", "if False:"),
    Guard(50, "any encoding is unfolded", "evals/servers.py", 'if encoding.strip().lower() not in ("", "identity"):', "if False:"),
    Guard(50, "any prompt will do", "quatro/rollout/server.py", 'if num_prompt not in (None, num_sent) or choice.get("prompt_token_ids") not in (None, list(prompt_ids)):', "if False:"),
    Guard(50, "any role answers", "quatro/rollout/server.py", 'not in (None, "assistant"):', "in ():"),
    Guard(50, "ids are not compared with their text", "quatro/rollout/server.py", "not in map(_letters, readings):", "in ():"),
    Guard(50, "equal samples are not told", "quatro/rollout/server.py", "if 2 * (num_equal := repeated.count(1)) > len(repeated):", "if False:"),
    Guard(51, "output has no limit", "evals/sandbox/worker.py", "        if is_flood:\n", "        if False:\n"),
    Guard(52, "metrics are not hashed", IDENTITY, 'if written.get("metrics_sha256", found) != found:', "if False:"),
    Guard(52, "rollouts are not hashed", IDENTITY, "if expected not in (None, found):", "if False:"),
    Guard(53, "nobody asks verl", "quatro/integrations/verl/command.py", "lines = [check, ", "lines = ["),
    Guard(54, "another configuration will do", IDENTITY, 'lasting_differences(state["config"], state.get(PATHS, {}), config) if "config" in state else []', "[]"),
    Guard(54, "whatever lies there will do", "quatro/config/paths.py", "if digest_of(path) == record.digest:", "if digest_of(path) is not None:"),
    Guard(54, "another status will do", IDENTITY, 'if status.get("run_digest", digest) != digest and', "if False and"),
    Guard(54, "a run of another point will do", "quatro/runs/points.py", "planned_differences(planned, load_config(run))", "[]"),
    Guard(54, "a plan of another point will do", "quatro/runs/points.py", "    if differing:\n", "    if False:\n"),
    Guard(54, "files of another run will do", "evals/files/belonging.py", "and digest != own:", "and False:"),
    Guard(54, "samples of another temperature will do", "evals/files/belonging.py", "    if wrong:\n", "    if False:\n"),
    Guard(54, "samples are not hashed", "evals/samples/about.py", "if found not in (None, expected):", "if False:"),
    Guard(53, "any method will do", "quatro/integrations/verl/check.py", "            ask(name)\n", "            pass\n"),
]  # fmt: skip
