"""A run's weights as a plain Hugging Face folder with a model card: `quatro export`."""

from quatro.runs.export.folder import Exported, ExportProgress, export_model

__all__ = ["ExportProgress", "Exported", "export_model"]
