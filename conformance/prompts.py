"""The prompts that the real model answers, so that the head is checked on inputs that a model makes.

Their purpose is variety in the head's input, not quality of the answers: prose gives flat distributions,
code and lists sharp ones, arithmetic many digits that lie close together, other languages rare tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """One user message and the kind of text that it asks for."""

    kind: str
    text: str


def _of(kind: str, *texts: str) -> tuple[Prompt, ...]:
    return tuple(Prompt(kind, text) for text in texts)


PROMPTS: tuple[Prompt, ...] = (
    *_of(
        "prose",
        "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
        "Describe the smell and the sounds of an old library on a rainy afternoon.",
        "Write the opening paragraph of a detective novel set on a night train.",
        "A baker and a beekeeper meet at a market. Write their conversation.",
        "Write a letter from a sailor to his sister about a storm at sea.",
        "Tell a fable in which a tortoise teaches a king to wait.",
        "Write a poem of three verses about the first snow of the year.",
        "Describe a city that was built on the back of a sleeping whale.",
    ),
    *_of(
        "explanation",
        "Explain to a child why the sky is blue and the sunset is red.",
        "How does a bicycle stay upright while it is moving?",
        "Explain what a hash table is and when it is slower than a list.",
        "Why do we have leap years, and which years are leap years?",
        "What happens inside a piano when a key is pressed?",
        "Explain the difference between weather and climate.",
        "How does a vaccine prepare the immune system?",
    ),
    *_of(
        "code",
        "Write a Python function that returns the n-th Fibonacci number without recursion.",
        "Write a C function that reverses a string in place.",
        "Write a SQL query for the three customers with the largest total of orders.",
        "Write a JavaScript function that removes duplicates from an array.",
        "Show a Python class for a stack with push, pop and peek.",
        "Write a bash script that counts the lines of every .txt file in a folder.",
        "Write an HTML page with a heading, a table of two rows and a link.",
        "Write a Rust function that checks whether a word is a palindrome.",
    ),
    *_of(
        "lists",
        "List ten animals that live in the sea, one per line.",
        "List the planets of the solar system with one fact for each.",
        "Give a packing list for a weekend in the mountains.",
        "List the months of the year and the number of days in each.",
        "Give a recipe for pancakes: first the ingredients, then numbered steps.",
        "Make a table in Markdown of five countries, their capitals and their currencies.",
        "List eight chemical elements with their symbols and atomic numbers.",
    ),
    *_of(
        "arithmetic",
        "What is 17 times 24? Show every step.",
        "Count from 1 to 40, separated by commas.",
        "Write the multiplication table of 7, from 7 x 1 to 7 x 12.",
        "A train travels 180 km in 2.5 hours. What is its average speed? Explain.",
        "List the first fifteen prime numbers.",
        "Add 1/2, 1/3 and 1/4 and write the result as one fraction, step by step.",
        "Write the powers of two from 2 to 4096.",
    ),
    *_of(
        "French", "Écris un court poème sur la mer et le vent.", "Comment prépare-t-on une soupe à l'oignon ?"
    ),
    *_of("German", "Beschreibe einen Spaziergang durch einen Wald im Herbst.", "Zähle von eins bis zwanzig."),
    *_of("Spanish", "Cuenta una historia breve sobre un gato que viaja en tren.", "¿Qué es la fotosíntesis?"),
    *_of("Italian", "Scrivi una lettera a un amico che vive lontano."),
    *_of("Portuguese", "Explique por que as folhas mudam de cor no outono."),
    *_of("Russian", "Напиши короткий рассказ о зимнем вечере."),
    *_of("Chinese", "请用三句话介绍长城。"),
    *_of("Japanese", "春の庭について短い詩を書いてください。"),
)
