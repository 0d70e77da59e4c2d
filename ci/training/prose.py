"""What is written on pages: words of the lexicon in no order, so that they must be read and cannot be guessed."""

from __future__ import annotations

from random import Random

from ci.training.lexicon import WORDS

FUNCTION_WORDS = WORDS[: WORDS.index("account")]
LETTERS = "abcdefghkmnpqrstuvwxyz"
CENTS = ("00", "25", "50", "75")


class Writer:
    """Writes until ``budget`` words are spent; what was begun is finished."""

    def __init__(self, rng: Random, budget: int) -> None:
        self.rng = rng
        self.left = budget

    def words(self, count: int) -> list[str]:
        """Give ``count`` words in lower case, one in eight a short function word."""
        self.left -= count
        return [self.rng.choice(FUNCTION_WORDS if self.rng.random() < 0.12 else WORDS) for _ in range(count)]

    def capitalised(self, fewest: int, most: int) -> list[str]:
        """Give some words, each with a capital."""
        return [word.capitalize() for word in self.words(self.rng.randint(fewest, most))]

    def sentence(self, fewest: int = 4, most: int = 9) -> list[str]:
        """Give a capital, words, now and then a number or a comma, and a full stop."""
        words = self.words(self.rng.randint(fewest, most))
        words[0] = words[0].capitalize()
        inner = self.rng.randrange(len(words))
        if 0 < inner < len(words) - 1 and self.rng.random() < 0.3:
            words[inner] = self.rng.choice((words[inner] + ",", self.number(), self.percentage()))
        words[-1] += "."
        return words

    def sentences(self, most: int) -> list[list[str]]:
        """Give one to ``most`` sentences, fewer where the budget ends."""
        written = [self.sentence()]
        while len(written) < most and self.left > 0 and self.rng.random() < 0.8:
            written.append(self.sentence())
        return written

    def number(self) -> str:
        """Give a number of mostly one or two digits."""
        return str(self.rng.randint(1, 999 if self.rng.random() < 0.1 else 99))

    def percentage(self) -> str:
        """Give a percentage without a fraction."""
        return f"{self.rng.randint(1, 99)}%"

    def amount(self) -> str:
        """Give an amount of money with its cents, half of them in dollars."""
        return f"{self.rng.choice(('', '$'))}{self.number()}.{self.rng.choice(CENTS)}"

    def date(self) -> list[str]:
        """Give a day and one word, which is rarely a month."""
        return [str(self.rng.randint(1, 31)), *self.capitalised(1, 1)]

    def address(self) -> list[list[str]]:
        """Give the lines of an address: a name, a street with its number, perhaps a town."""
        lines = [self.capitalised(1, 2), [*self.capitalised(1, 1), self.number()], self.capitalised(1, 2)]
        return lines[: self.rng.randint(2, 3)]

    def field(self) -> list[str]:
        """Give a form's field and what was filled in."""
        name = self.capitalised(1, 1)[0]
        values = (lambda: self.capitalised(1, 2), lambda: [self.number()], lambda: [self.amount()], self.date)
        return [f"{name}:", *self.rng.choice(values)()]

    def bill(self, rows: int) -> list[list[list[str]]]:
        """Give a table's cells: things, how many, and what they cost."""
        head = [self.capitalised(1, 1) for _ in range(3)]
        self.left -= 2 * (rows - 1)
        return [head] + [[self.capitalised(1, 2), [self.number()], [self.amount()]] for _ in range(rows - 1)]

    def equation(self) -> list[str]:
        """Give the terms and signs of a short equation."""
        terms = [self.rng.choice(LETTERS) if self.rng.random() < 0.7 else self.number() for _ in range(4)]
        signs = [self.rng.choice("+-/") for _ in range(2)]
        self.left -= 5
        if self.rng.random() < 0.5:
            return [terms[0], signs[0], terms[1], "=", terms[2]]
        return [terms[0], signs[0], terms[1], signs[1], terms[2], "=", terms[3]]

    def rows(self, rows: int, columns: int) -> list[list[list[str]]]:
        """Give a table's cells: a row of headings, then a word or two and numbers of some sort."""
        kinds = [self.rng.choice((self.number, self.amount, self.percentage)) for _ in range(columns - 1)]
        head = [self.capitalised(1, 1) for _ in range(columns)]
        self.left -= (rows - 1) * (columns - 1)
        return [head] + [[self.capitalised(1, 2), *([kind()] for kind in kinds)] for _ in range(rows - 1)]
