# %% [markdown]
# Teach a 122k-parameter model to play digit countdown, and see what that does to Pass@k and UCC@k.
# One core needs a minute, or two the first time. Run it cell by cell, or whole: `python examples/five_minutes.py`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import quatro

KS = [1, 2, 4, 8, 16, 32]

# %% Train. Run this cell again to continue a run that was stopped, or to get one that is finished.
run = quatro.fine_tune("quickstart", "runs/five-minutes", overrides={"method.delta": 0.01, "steps": 60}, resume=True)
metrics = quatro.read_metrics(run)
print(metrics[["step", "reward/mean", "entropy/token_mean", "kl/new_old"]].tail())

# %% Sample. 32 graded samples for each of 200 held-out problems. Samples that exist are not drawn again.
samples = {
    label: quatro.read_samples(quatro.draw_samples(model, "countdown", n=32, grade=True))
    for label, model in {"base": "embedded:countdown", "QUATRO": str(run.path)}.items()
}

# %% Measure and plot. Pass@k follows from the number of correct samples of each problem, UCC@k from how many differ.
figure, (reward, passk, ucc) = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
for label, frame in samples.items():
    problems = [(one["completion"], one["correct"]) for _, one in frame.groupby("id")]
    pass_K = np.stack([quatro.pass_at_k(len(texts), correct.sum(), KS) for texts, correct in problems]).mean(axis=0)
    ucc_K = np.stack([quatro.ucc_at_k(*one, KS, similarity="exact") for one in problems]).mean(axis=0)
    print(f"{label:6}  Pass@1 {pass_K[0]:.3f}  Pass@32 {pass_K[-1]:.3f}  UCC@32 {ucc_K[-1]:.2f}")
    passk.semilogx(KS, pass_K, "o-", base=2, label=label)
    ucc.semilogx(KS, ucc_K, "o-", base=2, label=label)
reward.plot(metrics["step"], metrics["reward/mean"].rolling(5, center=True, min_periods=1).mean())
for axes, x, title in ((reward, "iteration", "reward"), (passk, "k", "Pass@k"), (ucc, "k", "UCC@k")):
    axes.set(xlabel=x, title=title)
passk.legend()
figure.savefig("five-minutes.png")
