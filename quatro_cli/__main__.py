"""`python -m quatro_cli` is `quatro`."""

from quatro_cli.app import main

main()
