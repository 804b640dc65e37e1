"""Drafts with another vocabulary beside what they do not do: beams and encoders. Each is refused by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from draft_service.beam_calls import grow_beams
from draft_service.host import DraftHost
from specpair.errors import NotSupportedError, VocabularyMismatchError
from specpair.options import SamplingOptions, SequenceOptions
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as coordinator_pb2
from specpair.v1 import draft_service_pb2 as pb
from tests.service import distributions as distribution
from tests.service.test_vocabularies import DRAFTS, SHAPE, TARGET, translated_pair
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_encoder_decoders import make_encoder_decoder
from tests.tiny_tokenizers import Document, make_speaking_model, write_tokenizer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("target")
    yield make_speaking_model(folder, TARGET, seed=3, vocab_size=distribution.VOCABULARY, **SHAPE)


async def test_beams_are_searched_without_the_draft(target: Path, tmp_path: Path) -> None:
    """Its model cannot be fed the target's tokens: the draft refuses by name, and the coordinator does not ask."""
    async with translated_pair(target, tmp_path, "reduced") as pair:
        found: list[list[list[int]]] = []
        for count in (0, 3):
            request = coordinator_pb2.GenerateTokensRequest(
                token_ids={"ids": [0, 3, 1, 2, 3]}, max_tokens=8, num_beams=2, n=2, num_speculative_tokens=count
            )
            responses = [response async for response in pair.coordinator.GenerateTokens(request)]
            found.append([[token.id for token in response.tokens] for response in responses])
            speculation = responses[-1].summary.speculation
            assert (speculation.draft_token_count, speculation.fallback_count) == (0, 0)
        assert found[0] == found[1]

        assert isinstance(pair.draft, RunningModel) and isinstance(pair.draft.host, DraftHost)
        name = pair.draft.host.info().translations[0].target_vocabulary
        options = SequenceOptions(sampling=SamplingOptions(temperature=0.0), vocab_size=4, target_vocabulary=name)
        await pair.draft.host.open("s", [0, 3], 2, options)
        asked = pb.GrowBeamsRequest(
            sequence_id="s", base_length=2, num_speculative_tokens=1, num_beams=1, beam_nodes=[-1], beam_scores=[0.0]
        )
        with pytest.raises(NotSupportedError, match="another vocabulary"):
            await grow_beams(pair.draft.host, asked)
        await pair.draft.host.close("s")


def encoder_decoder(folder: Path, tokenizer: Document, vocab_size: int) -> Path:
    make_encoder_decoder(folder, "t5", vocab_size=vocab_size)
    write_tokenizer(folder, tokenizer)
    return folder


@pytest.mark.parametrize("has_encoder", [(True, False), (False, True), (True, True)])
async def test_what_an_encoder_reads_is_not_translated(tmp_path: Path, has_encoder: tuple[bool, bool]) -> None:
    """A draft that reads something else, or the same in other tokens, is not used, and is told no tokenizer."""
    kinds = ((TARGET, distribution.VOCABULARY), DRAFTS["unigram"])
    target, draft = (
        encoder_decoder(tmp_path / str(index), *kind)
        if has
        else make_speaking_model(tmp_path / str(index), kind[0], vocab_size=kind[1])
        for index, (has, kind) in enumerate(zip(has_encoder, kinds, strict=True))
    )
    async with (
        running_target(engine_config(target, max_model_len=64)) as targets,
        running_draft(engine_config(draft, max_model_len=64)) as drafts,
    ):
        config = CoordinatorConfig(
            server=ServerConfig(port=0), target_addresses=(targets.address,), draft_addresses=(drafts.address,)
        )
        with pytest.raises(VocabularyMismatchError, match="has an encoder"):
            async with connect_pair(config):
                pass
        assert drafts.host.info().translations == ()
