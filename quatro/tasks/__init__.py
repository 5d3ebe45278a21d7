"""The embedded benchmarks, each in one file: its problems, its checker, and how its policy learns to answer at first.

`evals` measures them as any other benchmark: its catalogue names the modules of this room, and imports them when their
problems or checkers are needed. `quatro/policy/embedded.py` makes the policies.
"""
