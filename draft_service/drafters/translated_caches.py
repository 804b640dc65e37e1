"""The caches of sequences that a draft holds in a target's tokens: keys and values are those of its own tokens."""

from dataclasses import dataclass

from draft_service.translation.transcript import Transcript
from draft_service.translation.translation import Translation
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.sequence import Sequence


@dataclass(eq=False, kw_only=True)
class Translated:
    """One sequence in the draft's own tokens."""

    translation: Translation
    transcript: Transcript
    own: Sequence
    """The draft's tokens of the committed text, and those drafted after them."""

    def cut(self, cached: Sequence, length: int) -> int:
        """Translates the first `length` tokens of the sequence that has the target's. Touches no cache: a thread may do
        it. Returns from where on the draft's tokens have changed."""
        same = min(cached.valid_length, length, len(self.transcript.ends))
        return self.transcript.follow(same, cached.tokens[same:length])

    def apply(self, cached: Sequence, changed: int) -> None:
        """Gives the draft's sequence the tokens that were cut. What was drafted goes, unless it is the same again."""
        cached.valid_length = len(self.transcript.ends)
        changed = min(changed, len(self.own.tokens))
        self.own.replace_from(changed, self.transcript.own_ids[changed:])


class TranslatedCaches:
    """Opens, forks and closes them together with the sequences that have the target's tokens. Event loop only."""

    def __init__(self, inner: CacheOwner):
        self._inner = inner
        self._translated: dict[Sequence, Translated] = {}

    def open(self, cached: Sequence, translation: Translation) -> Translated:
        """The translation of a sequence; it is begun by the first call."""
        if cached not in self._translated:
            transcript = translation.transcript()
            own = Sequence(list(transcript.own_ids))
            self._translated[cached] = Translated(translation=translation, transcript=transcript, own=own)
        return self._translated[cached]

    def find(self, cached: Sequence) -> Translated | None:
        return self._translated.get(cached)

    def is_in_use(self, name: str) -> bool:
        """Whether a sequence is open with the target's vocabulary of this name."""
        return any(translated.translation.name == name for translated in self._translated.values())

    def fork(self, source: Sequence, length: int) -> Sequence:
        translated = self._translated.get(source)
        if translated is None:
            return self._inner.fork(source, length)
        forked = Sequence(source.tokens[:length], valid_length=min(length, source.valid_length))
        transcript = translated.transcript.forked(forked.valid_length)
        own = self._inner.fork(translated.own, min(len(transcript.own_ids), len(translated.own.tokens)))
        self._translated[forked] = Translated(translation=translated.translation, transcript=transcript, own=own)
        return forked

    def close(self, sequence: Sequence) -> None:
        translated = self._translated.pop(sequence, None)
        self._inner.close(sequence if translated is None else translated.own)

    def expect_nothing(self, sequence: Sequence) -> None:
        translated = self._translated.get(sequence)
        self._inner.expect_nothing(sequence if translated is None else translated.own)
