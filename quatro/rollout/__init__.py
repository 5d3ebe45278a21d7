"""The engines that draw responses."""
