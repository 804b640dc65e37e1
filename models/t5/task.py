"""The generated task: sentences of a small grammar, translated into a made-up language.

Each word of the language has two or three syllables, which are its tokens. Its verb comes last, adjectives follow their
nouns, and most verbs and adjectives have two translations, of which the noun before decides how likely each is. So a
translation has easy tokens and hard ones, and at temperature 1 there are several good ones.
"""

import random
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

NOUNS = (
    *("dog", "cat", "house", "river", "tree", "child", "teacher", "king", "bird", "horse", "garden", "road"),
    *("stone", "boat", "book", "letter", "mountain", "field", "door", "window", "farmer", "sailor", "cloud", "star"),
)
ADJECTIVES = (
    *("small", "big", "red", "old", "young", "quiet", "loud", "green", "dark", "bright", "slow", "quick"),
    *("cold", "warm", "strange", "kind"),
)
VERBS = (
    *("sees", "finds", "likes", "follows", "builds", "carries", "paints", "watches", "hears", "leaves"),
    *("reaches", "remembers"),
)
ADVERBS = ("slowly", "often", "never", "today", "again", "alone")
PREPOSITIONS = {"near": "mi", "behind": "ta", "under": "so", "with": "ke"}
ARTICLES = ("the", "a")
SYLLABLES = tuple("".join(pair) for pair in product("bdfgklmnprstvz", "aeiou"))
END = "."
SYNONYM = 0.25
"""Probability of a word's second translation; the reverse after nouns of an odd place in the list."""


class Pair(NamedTuple):
    """A sentence and its translation, as tokens. A token that goes on with a word begins with ##."""

    source: list[str]
    translation: list[str]


def lexicon() -> dict[str, list[list[str]]]:
    """The translations of each word, as syllables."""
    chance = random.Random(7)
    words: dict[str, list[list[str]]] = {}
    for word in (*NOUNS, *ADJECTIVES, *VERBS, *ADVERBS):
        count = 1 if word in NOUNS or word in ADVERBS else 2
        words[word] = [made_up(chance) for _ in range(count)]
    return words


def made_up(chance: random.Random) -> list[str]:
    first, *others = chance.sample(SYLLABLES, chance.choice((2, 3)))
    return [first, *(f"##{syllable}" for syllable in others)]


LEXICON = lexicon()


def sentences(seed: int) -> Iterator[Pair]:
    """Sentences without end."""
    chance = random.Random(seed)
    while True:
        yield sentence(chance)


def sentence(chance: random.Random) -> Pair:
    subject, subject_words = phrase(chance)
    verb, adverb, preposition = chance.choice(VERBS), chance.choice(ADVERBS), chance.choice(list(PREPOSITIONS))
    object_, object_words = phrase(chance)
    place, place_words = phrase(chance)
    source, translation = [*subject_words], translated_phrase(chance, subject)
    if chance.random() < 0.4:
        source.append(adverb)
        translation += LEXICON[adverb][0]
    source += [verb, *object_words]
    translation += translated_phrase(chance, object_)
    if chance.random() < 0.5:
        source += [preposition, *place_words]
        translation += [*translated_phrase(chance, place), PREPOSITIONS[preposition]]
    translation += translated(chance, verb, object_[-1])
    return Pair([*source, END], [*translation, END])


def phrase(chance: random.Random) -> tuple[list[str], list[str]]:
    """The adjectives and the noun of a phrase, and the phrase with its article."""
    words = [*chance.sample(ADJECTIVES, chance.choice((0, 1, 1, 2))), chance.choice(NOUNS)]
    return words, [chance.choice(ARTICLES), *words]


def translated_phrase(chance: random.Random, words: list[str]) -> list[str]:
    *adjectives, noun = words
    parts = [LEXICON[noun][0], *(translated(chance, adjective, noun) for adjective in adjectives)]
    return [token for part in parts for token in part]


def translated(chance: random.Random, word: str, noun: str) -> list[str]:
    """One of the word's translations, as the noun makes it likely."""
    share = SYNONYM if NOUNS.index(noun) % 2 == 0 else 1 - SYNONYM
    return LEXICON[word][chance.random() < share]


def vocabulary() -> list[str]:
    """All tokens of both languages."""
    words = {*NOUNS, *ADJECTIVES, *VERBS, *ADVERBS, *PREPOSITIONS, *ARTICLES, END}
    return [*sorted(words), *SYLLABLES, *(f"##{syllable}" for syllable in SYLLABLES)]
