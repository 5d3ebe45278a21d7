# %% [markdown]
# Teach a 122k-parameter model to play digit countdown, and see what that does to Pass@k and UCC@k.
# One idle core needs a minute, or two the first time. Run it cell by cell, or whole: `python examples/five_minutes.py`.

# %%
import matplotlib.pyplot as plt

import quatro

# %% Train. Run this cell again to continue a run that was stopped, or to get one that is finished.
wanted = {"method.delta": 0.01, "steps": 60}
run = quatro.fine_tune("quickstart", "runs/five-minutes", overrides=wanted, resume=True, observer=quatro.show())
print(run)

# %% Sample. 32 graded samples for each of 200 held-out problems. Samples that exist are not drawn again.
base, tuned = (quatro.draw_samples(model, "countdown", n=32, grade=True) for model in ("embedded:countdown", run))

# %% Measure. Pass@k follows from the number of correct samples of each problem, UCC@k from how many differ.
measured = {"base": quatro.measure(base), "QUATRO": quatro.measure(tuned)}
for label, found in measured.items():
    print(f"{label}\n{found}\n")
print(quatro.compare(base, tuned, k=[1, 32]))

# %% Plot.
figure, (reward, *others) = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
metrics = quatro.read_metrics(run)
reward.plot(metrics["step"], metrics["reward/mean"].rolling(5, center=True, min_periods=1).mean())
reward.set(xlabel="iteration", title="reward")
for label, found in measured.items():
    frame = found.frame().query("benchmark == 'countdown'")
    for axes, metric in zip(others, ("pass@k", "ucc@k"), strict=True):
        curve = frame[frame["metric"] == metric]
        axes.semilogx(curve["k"], curve["value"], "o-", base=2, label=label)
        axes.set(xlabel="k", title=metric)
others[0].legend()
figure.savefig("five-minutes.png")
