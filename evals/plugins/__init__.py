"""Pass@k, UCC@k and distinct@k inside other evaluation harnesses: one file each, which nothing of quatro imports."""
