"""A reward that differs among the responses of a random model."""


def digits(prompt, completion: str, answer) -> float:
    return sum(character.isdigit() for character in completion) / 8
