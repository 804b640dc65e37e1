/* A forward pass of a Llama-like decoder as one call: rows of several sequences, through all layers, to logits.

All threads of the pass go through the same phases, with a barrier after each. Every number is computed by one thread in
a fixed order that does not depend on the other tokens of the pass, nor on the number of threads. */

#include "attention.h"
#include "bytes.h"
#include "meeting.h"
#include "pass.h"
#include "product.h"
#include "threads.h"
#include "vectors.h"

struct Layer {
    const float *attention_norm;
    struct Product query_key_value;
    const float *query_norm, *key_norm; /* [head size], or null */
    struct Product output;
    const float *mlp_norm;
    struct Product gate_up;
    struct Product down;
    double scaling;
    int64_t window; /* 0: none */
};

struct Model {
    int64_t layer_count, hidden, heads, key_heads, head_size, intermediate;
    int64_t is_bf16; /* rows of products, keys and values */
    double eps;
    int64_t is_embedding_bf16;
    const void *embedding;
    const float *cosine, *sine; /* [positions][head size / 2] */
    const float *norm;
    struct Product head;
    const struct Layer *layers;
};

/* The root-mean-square norm of `size` numbers, to a row of any type. */
INLINE void normalise(const float *x, const float *weight, int64_t size, double eps, void *to, int is_bf16) {
    floats squares = {};
    for (int64_t i = 0; i < size; i += WIDTH) {
        floats part = load(x + i, 0, size - i);
        squares += part * part;
    }
    float scale = 1.0f / sqrtf(sum_of(squares) / size + (float)eps);
    for (int64_t i = 0; i < size; i += WIDTH)
        store(offset(to, is_bf16, i), is_bf16, size - i,
              load(x + i, 0, size - i) * scale * load(weight + i, 0, size - i));
}

static void embed(const struct Model *model, const struct Pass *pass, int thread, int threads) {
    for (int64_t t = thread; t < pass->token_count; t += threads) {
        const void *from = offset(model->embedding, model->is_embedding_bf16, pass->token_ids[t] * model->hidden);
        for (int64_t i = 0; i < model->hidden; i += WIDTH)
            store(pass->residual + t * model->hidden + i, 0, model->hidden - i,
                  load(offset(from, model->is_embedding_bf16, i), model->is_embedding_bf16, model->hidden - i));
    }
}

static void normalise_all(const struct Model *model, const struct Pass *pass, const float *weight, int thread,
                          int threads) {
    for (int64_t t = thread; t < pass->token_count; t += threads)
        normalise(pass->residual + t * model->hidden, weight, model->hidden, model->eps,
                  offset(pass->inputs, model->is_bf16, t * pass->input_stride), model->is_bf16);
}

/* Norm and rotation of one head, in place. */
INLINE void turn(const struct Model *model, float *head, const float *norm, int64_t position, float scale) {
    int64_t half = model->head_size / 2;
    const float *cosine = model->cosine + position * half, *sine = model->sine + position * half;
    if (norm) normalise(head, norm, model->head_size, model->eps, head, 0);
    for (int64_t i = 0; i < half; i++) {
        float left = head[i], right = head[i + half];
        head[i] = (left * cosine[i] - right * sine[i]) * scale;
        head[i + half] = (right * cosine[i] + left * sine[i]) * scale;
    }
}

INLINE void keep(const struct Model *model, const float *head, void *to) {
    for (int64_t i = 0; i < model->head_size; i += WIDTH)
        store(offset(to, model->is_bf16, i), model->is_bf16, model->head_size - i,
              load(head + i, 0, model->head_size - i));
}

INLINE void *cached(const struct Model *model, void *base, const struct Segment *segment, int64_t layer, int64_t head,
                    int64_t position) {
    int64_t row = (layer * model->key_heads + head) * segment->capacity + position;
    return offset(base, model->is_bf16, row * model->head_size);
}

/* Rotates queries and keys; stores keys and values. */
static void place(const struct Model *model, const struct Pass *pass, int64_t index, int thread, int threads) {
    const struct Layer *layer = model->layers + index;
    int64_t every = model->heads + model->key_heads, number = 0;
    for (int64_t s = 0; s < pass->segment_count; s++) {
        const struct Segment *segment = pass->segments + s;
        for (int64_t t = 0; t < segment->count; t++) {
            float *heads = pass->projected + (segment->first + t) * pass->projected_stride;
            int64_t position = pass->positions[segment->first + t], slot = segment->start + t;
            for (int64_t h = 0; h < every; h++, number++) {
                if (number % threads != thread) continue;
                float *head = heads + h * model->head_size;
                int64_t key = h - model->heads;
                if (key < 0) {
                    turn(model, head, layer->query_norm, position, (float)layer->scaling);
                    continue;
                }
                turn(model, head, layer->key_norm, position, 1.0f);
                keep(model, head, cached(model, segment->keys, segment, index, key, slot));
                keep(model, head + model->key_heads * model->head_size,
                     cached(model, segment->values, segment, index, key, slot));
            }
        }
    }
}

/* Query number j of a key head: head j % group of token j / group. */
static void ask(const struct Model *model, const struct Pass *pass, const struct Segment *segment, int64_t key_head,
                int64_t j, int64_t window, struct Queries *asked, int q) {
    int64_t group = model->heads / model->key_heads, token = j / group, head = key_head * group + j % group;
    int64_t index = segment->first + token, position = pass->positions[index];
    asked->rows[q] = pass->projected + index * pass->projected_stride + head * model->head_size;
    asked->results[q] =
        offset(pass->inputs, model->is_bf16, index * pass->input_stride + head * model->head_size);
    asked->to[q] = position + 1;
    asked->from[q] = window && position >= window ? position - window + 1 : 0;
    if (segment->paths) { /* tokens are stored in order of the tree, not of positions */
        asked->path = segment->paths + token * segment->count;
        asked->start = segment->start;
    }
}

static void attend_all(const struct Model *model, const struct Pass *pass, int64_t index, int thread, int threads) {
    int64_t group = model->heads / model->key_heads, number = 0;
    for (int64_t s = 0; s < pass->segment_count; s++) {
        const struct Segment *segment = pass->segments + s;
        int64_t count = segment->count * group, most = segment->paths ? 1 : QUERIES;
        for (int64_t h = 0; h < model->key_heads; h++)
            for (int64_t j = 0; j < count; j += most, number++) {
                if (number % threads != thread) continue;
                struct Queries asked = {};
                int queries = (int)(count - j < most ? count - j : most);
                for (int q = 0; q < queries; q++) {
                    ask(model, pass, segment, h, j + q, model->layers[index].window, &asked, q);
                    asked.scores[q] = pass->scores + (thread * QUERIES + q) * pass->score_count;
                }
                asked.base = asked.from[0] / WIDTH * WIDTH; /* the earliest token sees furthest back */
                attend_any(queries, &asked, cached(model, segment->keys, segment, index, h, 0),
                           cached(model, segment->values, segment, index, h, 0), model->is_bf16, model->head_size);
            }
    }
}

static void keep_features(const struct Model *model, const struct Pass *pass, int64_t index, int thread, int threads) {
    if (!pass->feature_places || pass->feature_places[index] < 0) return;
    float *to = pass->features + pass->feature_places[index] * pass->feature_row_count * model->hidden;
    for (int64_t r = thread; r < pass->feature_row_count; r += threads)
        memcpy(to + r * model->hidden, pass->residual + pass->feature_rows[r] * model->hidden,
               model->hidden * sizeof *to);
}

static void run_layer(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int64_t index,
                      int thread, int threads) {
    const struct Layer *layer = model->layers + index;
    int64_t count = pass->token_count;
    struct Target projected = {pass->projected, pass->projected_stride, 0};
    struct Target residual = {pass->residual, model->hidden, 0};
    struct Target gated = {pass->gated, layer->down.in, model->is_bf16};
    normalise_all(model, pass, layer->attention_norm, thread, threads);
    meet(meeting, threads);
    multiply_any(STORE, &layer->query_key_value, pass->inputs, pass->input_stride, count, projected, thread, threads);
    meet(meeting, threads);
    place(model, pass, index, thread, threads);
    meet(meeting, threads);
    attend_all(model, pass, index, thread, threads);
    meet(meeting, threads);
    multiply_any(ADD, &layer->output, pass->inputs, pass->input_stride, count, residual, thread, threads);
    meet(meeting, threads);
    normalise_all(model, pass, layer->mlp_norm, thread, threads);
    meet(meeting, threads);
    multiply_any(GATE, &layer->gate_up, pass->inputs, pass->input_stride, count, gated, thread, threads);
    meet(meeting, threads);
    multiply_any(ADD, &layer->down, pass->gated, layer->down.in, count, residual, thread, threads);
    meet(meeting, threads);
    keep_features(model, pass, index, thread, threads);
}

void run_pass(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int thread, int threads) {
    embed(model, pass, thread, threads);
    meet(meeting, threads);
    for (int64_t index = 0; index < model->layer_count; index++)
        run_layer(model, pass, meeting, index, thread, threads);
    for (int64_t r = thread; r < pass->row_count; r += threads)
        normalise(pass->residual + pass->rows[r] * model->hidden, model->norm, model->hidden, model->eps,
                  offset(pass->inputs, model->is_bf16, r * pass->input_stride), model->is_bf16);
    meet(meeting, threads);
    struct Target logits = {pass->logits, model->head.out, 0};
    multiply_any(STORE, &model->head, pass->inputs, pass->input_stride, pass->row_count, logits, thread, threads);
}

struct Call {
    const struct Model *model;
    const struct Pass *pass;
    struct Meeting meeting;
};

static void run_part(void *data) {
    struct Call *call = data;
    run_pass(call->model, call->pass, &call->meeting, omp_get_thread_num(), omp_get_num_threads());
}

__attribute__((visibility("default"))) void specpair_forward(const struct Model *model, const struct Pass *pass) {
    if (pass->thread_count == 1 || !GOMP_parallel) {
        run_pass(model, pass, 0, 0, 1);
        return;
    }
    struct Call call = {model, pass, {}};
    GOMP_parallel(run_part, &call, (unsigned)pass->thread_count, 0);
}

/* Whether weights of 8 and 4 bits are supported on this processor. */
__attribute__((visibility("default"))) int specpair_multiplies_bytes(void) { return MULTIPLIES_BYTES; }
