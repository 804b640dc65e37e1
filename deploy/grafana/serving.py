"""The dashboard of serving: latency, throughput, batches, caches, errors."""

from deploy.grafana.panels import BYTES, PER_SECOND, RATIO, SECONDS, Panels, Query, buckets, lines, mean, quantiles, row

ROUNDS = "specpair_spec_decode_rounds"


def panels() -> Panels:
    return [*_requests(), *_latency(), *_models(), *_services()]


def _requests() -> Panels:
    return [
        row("Requests"),
        lines(
            "Tokens per second",
            "Generated, and read as prompts.",
            Query("sum(rate(specpair_generation_tokens_total[$__rate_interval]))", "generated"),
            Query("sum(rate(specpair_prompt_tokens_total[$__rate_interval]))", "prompts"),
            unit=PER_SECOND,
        ),
        lines(
            "Requests running",
            "Those that were admitted and have not ended.",
            Query("sum(specpair_num_requests_running)", "running"),
        ),
        lines(
            "Requests ended",
            "finished, failed, or cancelled by the client.",
            Query("sum by (outcome) (rate(specpair_requests_total[$__rate_interval]))", "{{outcome}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Outputs finished",
            "stop: by the model or a stop condition; length: by the limit of tokens.",
            Query(
                "sum by (finished_reason) (rate(specpair_request_success_total[$__rate_interval]))",
                "{{finished_reason}}",
            ),
            unit=PER_SECOND,
            is_stacked=True,
        ),
    ]


def _latency() -> Panels:
    return [
        row("Latency"),
        lines("Time to first token", "", *quantiles("specpair_time_to_first_token_seconds"), unit=SECONDS),
        lines("Inter-token latency", "", *quantiles("specpair_inter_token_latency_seconds"), unit=SECONDS),
        lines("Latency of whole requests", "", *quantiles("specpair_e2e_request_latency_seconds"), unit=SECONDS),
        buckets(
            "Time to first token, all requests",
            "How many requests waited how long.",
            "specpair_time_to_first_token_seconds",
            unit=SECONDS,
        ),
    ]


def _models() -> Panels:
    return [
        row("Models"),
        lines(
            "Sequences in a forward pass",
            "Mean of all passes.",
            mean("specpair_model_batch_sequences", "job", "{{job}}"),
        ),
        lines(
            "Tokens in a forward pass",
            "Mean of all passes.",
            mean("specpair_model_batch_tokens", "job", "{{job}}"),
        ),
        lines(
            "Time of a forward pass",
            "Mean of all passes.",
            mean("specpair_model_forward_time_seconds", "job", "{{job}}"),
            unit=SECONDS,
        ),
        lines(
            "Time in the queue",
            "How long a call waited for its forward pass, on average.",
            mean("specpair_model_queue_time_seconds", "job", "{{job}}"),
            unit=SECONDS,
        ),
        lines(
            "Tokens through the models",
            "decode: those whose logits were taken (proposed, verified, scored); prefill: all others.",
            Query("sum by (job, kind) (rate(specpair_model_tokens_total[$__rate_interval]))", "{{job}}, {{kind}}"),
            unit=PER_SECOND,
        ),
        lines(
            "Sequences open",
            "Each output holds one at the target and one at the draft.",
            Query("sum by (job) (specpair_sequences_open)", "{{job}}"),
        ),
        lines(
            "Cache blocks",
            "used: by open sequences; shared: of these, by several; kept: of closed ones, for the same beginnings.",
            Query("sum by (job, state) (specpair_cache_blocks)", "{{job}}, {{state}}"),
        ),
        lines(
            "Evictions",
            "Cache blocks given up because others were wanted: of closed sequences first, then of idle ones.",
            Query("sum by (job) (rate(specpair_cache_evictions_total[$__rate_interval]))", "{{job}}"),
            unit=PER_SECOND,
        ),
    ]


def _services() -> Panels:
    return [
        row("Services"),
        lines(
            "Up",
            "1 while Prometheus reaches the service.",
            Query('up{job=~"coordinator|draft|target"}', "{{job}}"),
            highest=1,
        ),
        lines(
            "Fallbacks",
            "Rounds that went without the draft because it did not answer, of all rounds.",
            Query(
                f'(sum(rate({ROUNDS}_total{{kind="fallback"}}[$__rate_interval])) or vector(0))'
                f" / (sum(rate({ROUNDS}_total[$__rate_interval])) > 0)",
                "fallbacks",
            ),
            unit=RATIO,
            highest=1,
        ),
        lines(
            "RPCs",
            "Calls that ended, by status.",
            Query(
                "sum by (job, grpc_code) (rate(grpc_server_handled_total[$__rate_interval]))",
                "{{job}}, {{grpc_code}}",
            ),
            unit=PER_SECOND,
        ),
        lines(
            "Time of RPCs",
            "95th percentile by method; streams of a service pair last as long as the pair.",
            Query(
                "histogram_quantile(0.95, sum by (le, job, grpc_method) "
                '(rate(grpc_server_handling_seconds_bucket{grpc_type="unary"}[$__rate_interval])))',
                "{{job}}, {{grpc_method}}",
            ),
            unit=SECONDS,
        ),
        lines(
            "Processor time",
            "Cores in use.",
            Query(
                'sum by (job) (rate(process_cpu_seconds_total{job=~"coordinator|draft|target"}[$__rate_interval]))',
                "{{job}}",
            ),
        ),
        lines(
            "Memory",
            "Resident.",
            Query('process_resident_memory_bytes{job=~"coordinator|draft|target"}', "{{job}}"),
            unit=BYTES,
        ),
    ]
