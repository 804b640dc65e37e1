"""Metrics of translation, read at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from specpair.model_info import VocabularyMethod, VocabularyTranslation


class TranslationCollector(Collector):
    """The targets with another vocabulary that a draft translates for."""

    def __init__(self, facts: Callable[[], Iterable[VocabularyTranslation]]):
        self._facts = facts

    def collect(self) -> Iterable[Metric]:
        facts = list(self._facts())
        translations = GaugeMetricFamily(
            "specpair_vocabulary_translations",
            "Vocabularies of targets that the draft translates for, by the method for sampled outputs.",
            labels=["method"],
        )
        for method in VocabularyMethod:
            translations.add_metric([method], sum(one.method is method for one in facts))
        yield translations
        yield GaugeMetricFamily(
            "specpair_vocabulary_overlap",
            "Share of the draft's tokens of a text that a target with another vocabulary has, too; the least of all.",
            value=min((one.overlap for one in facts), default=1.0),
        )
