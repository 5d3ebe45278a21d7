"""Our methods on verl: `plugin` is what verl loads by its entry point, `command` writes verl's command line."""
