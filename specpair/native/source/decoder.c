/* A forward pass of a Llama-like decoder as one call: rows of several sequences, through all layers, to logits.

All threads of the pass go through the same phases, with a barrier after each. Every number is computed by one thread in
a fixed order that does not depend on the other tokens of the pass, nor on the number of threads. */

#include "decoder.h"
#include "tiles.h"

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
    for (int64_t i = 0; i < half; i += WIDTH) {
        int64_t count = half - i;
        floats left = load(head + i, 0, count), right = load(head + half + i, 0, count);
        floats across = load(cosine + i, 0, count), along = load(sine + i, 0, count);
        store(head + i, 0, count, (left * across - right * along) * scale);
        store(head + half + i, 0, count, (right * across + left * along) * scale);
    }
}

INLINE void keep(const struct Model *model, const float *head, void *to) {
    for (int64_t i = 0; i < model->head_size; i += WIDTH)
        store(offset(to, model->is_bf16, i), model->is_bf16, model->head_size - i,
              load(head + i, 0, model->head_size - i));
}

/* Where a token of a segment is stored: at its position, or where its path says. */
INLINE int64_t slot_of(const struct Segment *segment, int64_t token, int64_t position) {
    if (!segment->paths) return segment->start + token;
    return segment->paths[token * segment->count + position - segment->start];
}

void place_heads(const struct Model *model, const struct Pass *pass, int64_t index, int64_t first_head, int thread,
                 int threads) {
    const struct Layer *layer = model->layers + index;
    int64_t every = model->heads + model->key_heads, number = 0;
    for (int64_t s = 0; s < pass->segment_count; s++) {
        const struct Segment *segment = pass->segments + s;
        for (int64_t t = 0; t < segment->count; t++) {
            float *heads = pass->projected + (segment->first + t) * pass->projected_stride;
            int64_t position = pass->positions[segment->first + t], slot = slot_of(segment, t, position);
            for (int64_t h = first_head; h < every; h++, number++) {
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
    asked->from[q] = window && position >= window ? position - window + 1 : model->first_key;
    if (segment->paths) { /* tokens are stored in order of a tree, or at the end of the slab */
        asked->path = segment->paths + token * segment->count;
        asked->start = segment->start;
    }
}

/* Queries of one key head of a segment that are attended to together: `count` of them, from number `first` on. */
struct Group {
    int64_t segment, key_head, first, count;
};

/* Goes on to the next one of the pass; returns 0 after the last. Each token of a tree has a path, and groups, of its own. */
static int next_group(const struct Model *model, const struct Pass *pass, struct Group *group) {
    int64_t heads = model->heads / model->key_heads;
    group->first += group->count;
    for (; group->segment < pass->segment_count; group->segment++, group->key_head = 0)
        for (; group->key_head < model->key_heads; group->key_head++, group->first = 0) {
            const struct Segment *segment = pass->segments + group->segment;
            int64_t end = segment->count * heads, left = end - group->first;
            if (left <= 0) continue;
            if (segment->paths) left = heads - group->first % heads;
            int64_t groups = (left + QUERIES - 1) / QUERIES; /* all of about the same size */
            group->count = (left + groups - 1) / groups;
            return 1;
        }
    return 0;
}

/* About what a group takes: to read a key and its value takes as long as to use them for three queries. */
static int64_t effort_of(const struct Model *model, const struct Pass *pass, int64_t index, const struct Group *group) {
    int64_t last = (group->first + group->count - 1) / (model->heads / model->key_heads);
    int64_t keys = pass->positions[pass->segments[group->segment].first + last] + 1, window = model->layers[index].window;
    return (window && window < keys ? window : keys) * (3 + group->count);
}

static void attend_to(const struct Model *model, const struct Pass *pass, int64_t index, const struct Group *group,
                      int thread) {
    const struct Segment *segment = pass->segments + group->segment;
    struct Queries asked = {};
    for (int q = 0; q < group->count; q++) {
        ask(model, pass, segment, group->key_head, group->first + q, model->layers[index].window, &asked, q);
        asked.scores[q] = pass->scores + (thread * QUERIES + q) * pass->score_count;
    }
    asked.base = asked.from[0] / WIDTH * WIDTH; /* the earliest token sees furthest back */
    int is_last = group->first + group->count == segment->count * (model->heads / model->key_heads);
    asked.next = cached(model, segment->keys, segment, index, group->key_head + is_last, 0);
    attend_any((int)group->count, &asked, cached(model, segment->keys, segment, index, group->key_head, 0),
               cached(model, segment->values, segment, index, group->key_head, 0), model->is_bf16, model->head_size);
}

/* A group is attended to by the thread in whose part of the effort of all its middle is. So threads take about the same
   time, and keys are read by one of them. */
static void attend_all(const struct Model *model, const struct Pass *pass, int64_t index, int thread, int threads) {
    int64_t whole = 0, before = 0;
    for (struct Group group = {}; next_group(model, pass, &group);) whole += effort_of(model, pass, index, &group);
    for (struct Group group = {}; next_group(model, pass, &group);) {
        int64_t effort = effort_of(model, pass, index, &group);
        if ((2 * before + effort) * threads / (2 * whole) == thread) attend_to(model, pass, index, &group, thread);
        before += effort;
    }
}

static void keep_features(const struct Model *model, const struct Pass *pass, int64_t index, int thread, int threads) {
    if (!pass->feature_places || pass->feature_places[index] < 0) return;
    float *to = pass->features + pass->feature_places[index] * pass->feature_row_count * model->hidden;
    for (int64_t r = thread; r < pass->feature_row_count; r += threads)
        memcpy(to + r * model->hidden, pass->residual + pass->feature_rows[r] * model->hidden,
               model->hidden * sizeof *to);
}

void run_layer(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int64_t index, int thread,
               int threads) {
    const struct Layer *layer = model->layers + index;
    int64_t count = pass->token_count;
    struct Target projected = {pass->projected, pass->projected_stride, 0};
    struct Target residual = {pass->residual, model->hidden, 0};
    struct Target gated = {pass->gated, layer->down.in, model->is_bf16};
    multiply(STORE, &layer->query_key_value, pass->inputs, pass->input_stride, count, projected, thread, threads);
    meet(meeting, threads);
    place_heads(model, pass, index, 0, thread, threads);
    meet(meeting, threads);
    attend_all(model, pass, index, thread, threads);
    meet(meeting, threads);
    multiply(ADD, &layer->output, pass->inputs, pass->input_stride, count, residual, thread, threads);
    meet(meeting, threads);
    normalise_all(model, pass, layer->mlp_norm, thread, threads);
    meet(meeting, threads);
    multiply(GATE, &layer->gate_up, pass->inputs, pass->input_stride, count, gated, thread, threads);
    meet(meeting, threads);
    multiply(ADD, &layer->down, pass->gated, layer->down.in, count, residual, thread, threads);
    meet(meeting, threads);
}

void run_head(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int thread, int threads) {
    for (int64_t r = thread; r < pass->row_count; r += threads)
        normalise(pass->residual + pass->rows[r] * model->hidden, model->norm, model->hidden, model->eps,
                  offset(pass->inputs, model->is_bf16, r * pass->input_stride), model->is_bf16);
    meet(meeting, threads);
    struct Target logits = {pass->logits, model->head.out, 0};
    multiply(STORE, &model->head, pass->inputs, pass->input_stride, pass->row_count, logits, thread, threads);
}

void multiply_rows(int action, const struct Product *product, const void *x, int64_t stride, int64_t count,
                   struct Target target, int thread, int threads) {
    multiply(action, product, x, stride, count, target, thread, threads);
}

void run_pass(const struct Model *model, const struct Pass *pass, struct Meeting *meeting, int thread, int threads) {
    embed(model, pass, thread, threads);
    meet(meeting, threads);
    for (int64_t index = 0; index < model->layer_count; index++) {
        normalise_all(model, pass, model->layers[index].attention_norm, thread, threads);
        meet(meeting, threads);
        run_layer(model, pass, meeting, index, thread, threads);
        keep_features(model, pass, index, thread, threads);
    }
    run_head(model, pass, meeting, thread, threads);
}

struct Forward {
    const struct Model *model;
    const struct Pass *pass;
};

static void run_forward(const void *work, struct Meeting *meeting, int thread, int threads) {
    const struct Forward *forward = work;
    run_pass(forward->model, forward->pass, meeting, thread, threads);
}

EXPORT void specpair_forward(const struct Model *model, const struct Pass *pass) {
    struct Forward forward = {model, pass};
    run_together(run_forward, &forward, pass->thread_count);
}

/* Whether weights of 8 and 4 bits are supported on this processor. */
EXPORT int specpair_multiplies_bytes(void) { return MULTIPLIES_BYTES; }
