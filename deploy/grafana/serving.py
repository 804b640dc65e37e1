"""The dashboard of serving: latency, throughput, batches, caches, errors."""

from deploy.grafana.panels import BYTES, PER_SECOND, RATIO, SECONDS, Panels, Query, buckets, lines, mean, quantiles, row

ROUNDS = "specpair_spec_decode_rounds"


def panels() -> Panels:
    return [*_requests(), *_latency(), *_models(), *_services(), *_processes()]


def _requests() -> Panels:
    return [
        row("Requests"),
        lines(
            "Tokens per second",
            "Generated tokens, prompt tokens, and those of them that the target had in its cache.",
            Query("sum(rate(specpair_generation_tokens_total[$__rate_interval]))", "generated"),
            Query("sum(rate(specpair_prompt_tokens_total[$__rate_interval]))", "prompts"),
            Query("sum(rate(specpair_cached_prompt_tokens_total[$__rate_interval]))", "prompts, cached"),
            unit=PER_SECOND,
        ),
        lines(
            "Requests running and waiting",
            "Requests that were admitted and have not ended, and those that wait for places.",
            Query("sum(specpair_num_requests_running)", "running"),
            Query("sum(specpair_num_requests_waiting)", "waiting"),
        ),
        lines(
            "Refusals",
            "Requests that got no place, sequences that were not opened, and streams, by reason.",
            Query("sum by (reason) (rate(specpair_request_refusals_total[$__rate_interval]))", "request, {{reason}}"),
            Query("sum by (reason) (rate(specpair_sequence_refusals_total[$__rate_interval]))", "sequence, {{reason}}"),
            Query("sum(rate(specpair_stream_refusals_total[$__rate_interval]))", "stream"),
            unit=PER_SECOND,
        ),
        lines(
            "HTTP requests",
            "Requests that ended, by the status of their answer.",
            Query("sum by (status) (rate(specpair_http_requests_total[$__rate_interval]))", "{{status}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Requests ended",
            "By outcome, one for each prompt: finished; failed, or refused; cancelled, since the client left or "
            "another prompt of its body failed.",
            Query("sum by (outcome) (rate(specpair_requests_total[$__rate_interval]))", "{{outcome}}"),
            unit=PER_SECOND,
            is_stacked=True,
        ),
        lines(
            "Outputs finished",
            "stop: ended by the model or a stop condition; length: ended by the token limit.",
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
        lines(
            "Inter-token latency",
            "Tokens of a round, or of a run of rounds, arrive together and have equal shares of its time.",
            *quantiles("specpair_inter_token_latency_seconds"),
            unit=SECONDS,
        ),
        lines("Time in the waiting line", "", *quantiles("specpair_request_queue_time_seconds"), unit=SECONDS),
        lines("Latency of whole requests", "", *quantiles("specpair_e2e_request_latency_seconds"), unit=SECONDS),
        buckets(
            "Time to first token, all requests",
            "Number of requests by their time to first token.",
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
            "Mean time that a call waited for its forward pass.",
            mean("specpair_model_queue_time_seconds", "job", "{{job}}"),
            unit=SECONDS,
        ),
        lines(
            "Tokens through the models",
            "decode: tokens whose logits were used (proposed, verified, scored); prefill: all others.",
            Query("sum by (job, kind) (rate(specpair_model_tokens_total[$__rate_interval]))", "{{job}}, {{kind}}"),
            unit=PER_SECOND,
        ),
        lines(
            "Sequences open",
            "Each output has one at the target and one at the draft.",
            Query("sum by (job) (specpair_sequences_open)", "{{job}}"),
        ),
        lines(
            "Cache blocks",
            "used: by open sequences; shared: by several of these; kept: of closed sequences, for equal beginnings.",
            Query("sum by (job, state) (specpair_cache_blocks)", "{{job}}, {{state}}"),
        ),
        lines(
            "Evictions",
            "Cache blocks freed for other sequences: of closed sequences first, then of idle ones.",
            Query("sum by (job) (rate(specpair_cache_evictions_total[$__rate_interval]))", "{{job}}"),
            unit=PER_SECOND,
        ),
        lines(
            "Sequences that lost something",
            "Their whole cache to others, or their place because no call concerned them.",
            Query("sum by (job) (rate(specpair_num_preemptions_total[$__rate_interval]))", "{{job}}, cache"),
            Query("sum by (job) (rate(specpair_expired_sequences_total[$__rate_interval]))", "{{job}}, expired"),
            unit=PER_SECOND,
        ),
    ]


def _services() -> Panels:
    return [
        row("Services"),
        lines(
            "Up",
            "1 while Prometheus reaches the service.",
            Query('up{job=~"coordinator|draft|target"}', "{{job}}, {{instance}}"),
            highest=1,
        ),
        lines(
            "Fallbacks",
            "Share of the rounds that ran without the draft because it did not answer.",
            Query(
                f'(sum(rate({ROUNDS}_total{{kind="fallback"}}[$__rate_interval])) or vector(0))'
                f" / (sum(rate({ROUNDS}_total[$__rate_interval])) > 0)",
                "fallbacks",
            ),
            unit=RATIO,
            highest=1,
        ),
        lines(
            "Recoveries",
            "Failures that were recovered from: calls repeated, sequences reopened or moved.",
            Query(
                "sum by (service, kind) (rate(specpair_recoveries_total[$__rate_interval]))", "{{service}}, {{kind}}"
            ),
            unit=PER_SECOND,
        ),
        lines(
            "Sequences by instance",
            "Placed there now by the coordinator.",
            Query("sum by (service, address) (specpair_instance_sequences)", "{{service}}, {{address}}"),
        ),
    ]


def _processes() -> Panels:
    return [
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
            "95th percentile by method, of unary calls: streams between the services last as long as the pair.",
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
            "Resident memory.",
            Query('process_resident_memory_bytes{job=~"coordinator|draft|target"}', "{{job}}, {{instance}}"),
            unit=BYTES,
        ),
    ]
