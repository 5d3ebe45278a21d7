"""The paper's claims measured on the embedded task: verdicts by rule from a finished sweep, as a page. No torch."""
