"""The study of a real language model: SmolLM2-135M on word problems (DESIGN.md)."""
