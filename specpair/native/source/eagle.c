/* An EAGLE-3 head (arXiv 2503.01840): one decoder layer whose tokens are pairs of the token's embedding and a hidden
state, which for a token of the text is made of the target's features of the token before. */

#include "decoder.h"

struct Eagle {
    struct Model decoder;   /* of one layer, whose first product takes twice the width */
    const float *pair_norm; /* of a pair's hidden state */
    int64_t normalises_residual, feeds_back_normalised;
    int64_t tap_count, tap_size;
    struct Product join;       /* of the features of all taps, one after the other */
    const float *tap_norms;    /* [taps][tap size], or null */
    const float *joined_norm;  /* [taps * tap size], or null */
    struct Product key_value;  /* the panels of the layer's first product that have keys and values */
    int64_t key_value_start;   /* outputs of the layer's first product before them */
};

/* Numbers of the type of rows, as float32. */
static void widen(const void *from, float *to, int64_t size, int is_bf16) {
    for (int64_t i = 0; i < size; i += WIDTH)
        store(to + i, 0, size - i, load(offset(from, is_bf16, i), is_bf16, size - i));
}

static void narrow(const float *from, void *to, int64_t size, int is_bf16) {
    for (int64_t i = 0; i < size; i += WIDTH)
        store(offset(to, is_bf16, i), is_bf16, size - i, load(from + i, 0, size - i));
}

/* The inputs of a pair, both halves normalised, and its residual. */
static void enter(const struct Eagle *head, const struct Pass *pass, int64_t token, const float *hidden) {
    const struct Model *model = &head->decoder;
    int64_t width = model->hidden;
    int is_bf16 = (int)model->is_bf16, is_embedding_bf16 = (int)model->is_embedding_bf16;
    float *residual = pass->residual + token * width;
    void *inputs = offset(pass->inputs, is_bf16, token * pass->input_stride);
    widen(offset(model->embedding, is_embedding_bf16, pass->token_ids[token] * width), residual, width,
          is_embedding_bf16);
    normalise(residual, model->layers->attention_norm, width, model->eps, inputs, is_bf16);
    normalise(hidden, head->pair_norm, width, model->eps, offset(inputs, is_bf16, width), is_bf16);
    if (head->normalises_residual) normalise(hidden, head->pair_norm, width, model->eps, residual, 0);
    else memcpy(residual, hidden, width * sizeof *residual);
}

/* One more token of each of several texts. */
struct Step {
    const struct Eagle *head;
    const struct Pass *pass;
    const float *hidden; /* [tokens][width], of the tokens before */
    float *left;         /* [tokens][width], for the tokens after */
};

static void run_step(const void *work, struct Meeting *meeting, int thread, int threads) {
    const struct Step *step = work;
    const struct Eagle *head = step->head;
    const struct Pass *pass = step->pass;
    const struct Model *model = &head->decoder;
    for (int64_t t = thread; t < pass->token_count; t += threads)
        enter(head, pass, t, step->hidden + t * model->hidden);
    meet(meeting, threads);
    run_layer(model, pass, meeting, 0, thread, threads);
    for (int64_t t = thread; t < pass->token_count; t += threads) {
        const float *residual = pass->residual + t * model->hidden;
        float *left = step->left + t * model->hidden;
        if (head->feeds_back_normalised) normalise(residual, model->norm, model->hidden, model->eps, left, 0);
        else memcpy(left, residual, model->hidden * sizeof *left);
    }
    run_head(model, pass, meeting, thread, threads);
}

/* Drafts one more token: from the hidden states [tokens][width] of the tokens before to the logits of the pass, and to
   the hidden states that the next step is given. */
EXPORT void specpair_head_step(const struct Eagle *head, const struct Pass *pass, const float *hidden, float *left) {
    struct Step step = {head, pass, hidden, left};
    run_together(run_step, &step, pass->thread_count);
}

/* What the head keeps of tokens that the target has fed. */
struct Kept {
    const struct Eagle *head;
    const struct Pass *pass;
    const float *features; /* [taps][tokens][tap size] */
    void *const *stored;   /* [segments]: joined features [capacity][width], of the type of rows */
    const int64_t *before; /* [tokens]: where those of the token before are stored, or -1 */
    float *gathered;       /* [tokens][taps * tap size] */
    float *joined;         /* [tokens][width] */
};

/* The features of all taps as one row, normalised as the head says. */
static void gather(const struct Kept *kept, int64_t token) {
    const struct Eagle *head = kept->head;
    const struct Pass *pass = kept->pass;
    int64_t size = head->tap_size, whole = head->tap_count * size;
    int is_bf16 = (int)head->decoder.is_bf16;
    float *row = kept->gathered + token * whole;
    void *inputs = offset(pass->inputs, is_bf16, token * pass->input_stride);
    for (int64_t tap = 0; tap < head->tap_count; tap++) {
        const float *own = kept->features + (tap * pass->token_count + token) * size;
        if (head->tap_norms)
            normalise(own, head->tap_norms + tap * size, size, head->decoder.eps, row + tap * size, 0);
        else memcpy(row + tap * size, own, size * sizeof *row);
    }
    if (head->joined_norm) normalise(row, head->joined_norm, whole, head->decoder.eps, inputs, is_bf16);
    else narrow(row, inputs, whole, is_bf16);
}

static void *place_of_features(const struct Kept *kept, int64_t segment, int64_t slot) {
    const struct Model *model = &kept->head->decoder;
    return offset(kept->stored[segment], (int)model->is_bf16, slot * model->hidden);
}

static void store_joined(const struct Kept *kept, int thread, int threads) {
    const struct Model *model = &kept->head->decoder;
    const struct Pass *pass = kept->pass;
    for (int64_t s = 0; s < pass->segment_count; s++) {
        const struct Segment *segment = pass->segments + s;
        for (int64_t t = thread; t < segment->count; t += threads)
            narrow(kept->joined + (segment->first + t) * model->hidden, place_of_features(kept, s, segment->start + t),
                   model->hidden, (int)model->is_bf16);
    }
}

static void enter_all(const struct Kept *kept, int thread, int threads) {
    const struct Model *model = &kept->head->decoder;
    const struct Pass *pass = kept->pass;
    for (int64_t s = 0; s < pass->segment_count; s++) {
        const struct Segment *segment = pass->segments + s;
        for (int64_t t = segment->first + thread; t < segment->first + segment->count; t += threads) {
            float *hidden = kept->joined + t * model->hidden; /* free since all have met after `store_joined` */
            if (kept->before[t] < 0) memset(hidden, 0, model->hidden * sizeof *hidden);
            else widen(place_of_features(kept, s, kept->before[t]), hidden, model->hidden, (int)model->is_bf16);
            enter(kept->head, pass, t, hidden);
        }
    }
}

static void run_kept(const void *work, struct Meeting *meeting, int thread, int threads) {
    const struct Kept *kept = work;
    const struct Eagle *head = kept->head;
    const struct Pass *pass = kept->pass;
    const struct Model *model = &head->decoder;
    struct Target joined = {kept->joined, model->hidden, 0};
    struct Target projected = {pass->projected + head->key_value_start, pass->projected_stride, 0};
    for (int64_t t = thread; t < pass->token_count; t += threads) gather(kept, t);
    meet(meeting, threads);
    multiply_rows(STORE, &head->join, pass->inputs, pass->input_stride, pass->token_count, joined, thread, threads);
    meet(meeting, threads);
    store_joined(kept, thread, threads);
    meet(meeting, threads);
    enter_all(kept, thread, threads);
    meet(meeting, threads);
    multiply_rows(STORE, &head->key_value, pass->inputs, pass->input_stride, pass->token_count, projected, thread,
                  threads);
    meet(meeting, threads);
    place_heads(model, pass, 0, model->heads, thread, threads);
}

/* Stores the joined features of the tokens of a pass, and the keys and values of their pairs. */
EXPORT void specpair_head_keep(const struct Eagle *head, const struct Pass *pass, const float *features,
                               void *const *stored, const int64_t *before, float *gathered, float *joined) {
    struct Kept kept = {head, pass, features, stored, before, gathered, joined};
    run_together(run_kept, &kept, pass->thread_count);
}
