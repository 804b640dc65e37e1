"""`transformers` generate and assisted generation, measured in the process that runs them."""

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from bench.case import Case, Peer
from bench.measurement import Counts, Output
from bench.options import Dtype
from bench.threads import service_threads
from specpair.engine_config import EngineConfig
from specpair.models.device_defaults import choose_device, choose_dtype
from specpair.models.find_checkpoint import find_checkpoint


class Watch(BaseStreamer):
    """Records when tokens are produced, as a streaming client would see them."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []
        """Tokens for each output: 1, or what one round of assisted generation committed."""
        self._has_prompt = False

    def put(self, value: Tensor) -> None:
        if not self._has_prompt:  # generate passes the prompt first
            self._has_prompt = True
            return
        self.times.append(time.perf_counter())
        self.counts.append(value.shape[-1] if value.ndim == 2 else 1)

    def end(self) -> None:
        """Does nothing: no tokens are buffered."""


@dataclass
class Passes:
    """The forward passes of one model, recorded by hooks. On a GPU hooks only see the launch: times mean nothing."""

    rows: list[int] = field(default_factory=list)
    """Tokens fed to each pass."""
    seconds: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)

    def watch(self, model: Any) -> None:
        def before(module: Any, positional: Any, named: dict[str, Any]) -> None:
            self.rows.append(named["input_ids"].shape[1])
            self.started.append(time.perf_counter())

        def after(module: Any, inputs: Any, output: Any) -> None:
            self.seconds.append(time.perf_counter() - self.started[-1])

        model.register_forward_pre_hook(before, with_kwargs=True)
        model.register_forward_hook(after)

    def clear(self) -> None:
        for noted in (self.rows, self.seconds, self.started):
            noted.clear()

    def after(self, moment: float) -> tuple[int, float]:
        """Number of passes that began after a time, and their total seconds."""
        later = [seconds for started, seconds in zip(self.started, self.seconds, strict=True) if started > moment]
        return len(later), sum(later)


class TransformersModel:
    """Target and draft as the library runs them, with its own attention and cache, and with the target service's number
    of threads."""

    def __init__(self, target: str, draft: str, dtype: Dtype, device: str):
        self.device = choose_device(device)
        self.target = self._load(target, dtype)
        self.draft = self._load(draft, dtype)
        torch.set_num_threads(service_threads(self.target.num_parameters(), self.device))
        self._target_passes, self._draft_passes = Passes(), Passes()
        self._target_passes.watch(self.target)
        self._draft_passes.watch(self.draft)

    def _load(self, name: str, wanted: Dtype) -> Any:
        config = EngineConfig(model=name, dtype=wanted)
        dtype = choose_dtype(config, find_checkpoint(name).settings(), self.device)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, use_safetensors=True)
        model.generation_config.eos_token_id = None  # outputs have the requested length
        return model.to(self.device).eval()

    def facts(self) -> dict[str, object]:
        """The device, types and threads of the process."""
        return {
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "target_parameters": self.target.num_parameters(),
            "draft_parameters": self.draft.num_parameters(),
        }

    @torch.inference_mode()
    def generate(self, case: Case, prompts: list[list[int]], max_tokens: int, seed: int) -> Output:
        """One call for all prompts, which have the same length; assisted generation takes one at a time."""
        torch.manual_seed(seed)
        ids = torch.tensor(prompts, device=self.device)
        for passes in (self._target_passes, self._draft_passes):
            passes.clear()
        watch = Watch()
        assistant = self._assistant(case) if case.peer is Peer.ASSISTED else None
        started = time.perf_counter()
        output = self.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            pad_token_id=0,
            streamer=watch,
            assistant_model=assistant,
            **sampling_of(case),
            **({"cache_implementation": "static"} if case.peer is Peer.GENERATE_STATIC else {}),
        )
        return Output(
            token_ids=output[:, ids.shape[1] :].tolist(),
            first_token_seconds=watch.times[0] - started,
            tokens=len(prompts) * sum(watch.counts[1:]),
            seconds=watch.times[-1] - watch.times[0],
            output_seconds=len(prompts) * (watch.times[-1] - watch.times[0]),
            round_seconds=[after - before for before, after in pairwise(watch.times)],
            counts=self._counts(watch, len(prompts)),
        )

    def _assistant(self, case: Case) -> Any:
        """The draft with the case's number of tokens, or with the library's defaults, which stop a proposal where the
        draft is unsure."""
        k, settings = case.num_speculative_tokens, self.draft.generation_config
        settings.num_assistant_tokens = k
        settings.num_assistant_tokens_schedule = None if k is None else "constant"
        settings.assistant_confidence_threshold = None if k is None else 0.0
        return self.draft

    def _counts(self, watch: Watch, batch_size: int) -> Counts:
        """Counts after the first tokens. The outputs of a batch share their rounds, so each output counts them."""
        rounds, verify_seconds = self._target_passes.after(watch.times[0])
        _, draft_seconds = self._draft_passes.after(watch.times[0])
        drafted = [rows - 1 for rows in self._target_passes.rows[-rounds:]] if rounds else []
        accepted = [count - 1 for count in watch.counts[1:]]
        is_timed = self.device.type == "cpu"
        return Counts(
            rounds=batch_size * rounds,
            drafted=sum(drafted),
            accepted=sum(accepted),
            drafted_per_position=reached(drafted),
            accepted_per_position=reached(accepted),
            draft_seconds=batch_size * draft_seconds if is_timed else 0.0,
            verify_seconds=batch_size * verify_seconds if is_timed else 0.0,
        )


def sampling_of(case: Case) -> dict[str, Any]:
    """Plain sampling at the temperature: the library's default keeps the 50 most likely tokens."""
    if case.temperature == 0.0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": case.temperature, "top_k": 0, "top_p": 1.0}


def reached(lengths: list[int]) -> tuple[int, ...]:
    """For each position, how many of the lengths exceed it."""
    return tuple(sum(length > position for length in lengths) for position in range(max(lengths, default=0)))
