/* An EAGLE-3 head (arXiv 2503.01840): one decoder layer whose tokens are pairs of the token's embedding and a hidden
state, which for a token of the text is made of the target's features of the token before. */

#include "chains.h"
#include "eagle.h"
#include <stdlib.h>

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

void run_step(const struct Step *step, struct Meeting *meeting, int thread, int threads) {
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

static void run_one(const void *work, struct Meeting *meeting, int thread, int threads) {
    run_step(work, meeting, thread, threads);
}

/* Drafts one more token: from the hidden states [tokens][width] of the tokens before to the logits of the pass, and to
   the hidden states that the next step is given. */
EXPORT void specpair_head_step(const struct Eagle *head, const struct Pass *pass, const float *hidden, float *left) {
    struct Step step = {head, pass, hidden, left};
    run_together(run_one, &step, pass->thread_count);
}

/* Whole proposals: each token that is drawn is fed to the next step. Those that go on are in order, one row each. */
struct HeadRun {
    struct Step step;
    struct Pass pass; /* of the step */
    const struct Draft *draft;
    const struct Segment *begin; /* [chains], of the first step */
    struct Chain **going;
    int64_t going_count;
    float *hidden, *left, *room; /* [chains][width], the same, [threads][CHAIN_ROOM][width of a row of logits] */
    struct Segment *segments;
    int64_t *token_ids, *positions, *rows;
};

/* Has the next step feed a chain's newest token as this row. What was drafted lies where its position says, or where
   the path of the segment says, which has room for all. */
static void place_token(struct HeadRun *run, int64_t row, struct Chain *chain, int64_t token) {
    struct Segment *segment = run->segments + row;
    *segment = run->begin[chain - run->draft->chains];
    segment->first = run->rows[row] = row;
    run->positions[row] = chain->position + chain->length - 1;
    if (!segment->paths) segment->start = run->positions[row];
    run->token_ids[row] = token;
    run->going[row] = chain;
}

static void go_on(struct HeadRun *run) {
    int64_t kept = 0, width = run->step.head->decoder.hidden;
    for (int64_t r = 0; r < run->going_count; r++) {
        struct Chain *chain = run->going[r];
        if (chain->is_over) continue;
        memcpy(run->hidden + kept * width, run->left + r * width, width * sizeof *run->hidden);
        place_token(run, kept++, chain, chain->tokens[chain->length - 1]);
    }
    run->going_count = run->pass.token_count = run->pass.segment_count = run->pass.row_count = kept;
}

static void run_head_chains(const void *work, struct Meeting *meeting, int thread, int threads) {
    struct HeadRun *run = *(struct HeadRun *const *)work; /* the first thread changes it while the others wait */
    int64_t width = run->draft->width;
    while (run->going_count) {
        run_step(&run->step, meeting, thread, threads);
        meet(meeting, threads);
        for (int64_t r = thread; r < run->going_count; r += threads)
            draw_next(run->draft, run->going[r], run->pass.logits + r * width, run->room + thread * CHAIN_ROOM * width);
        meet(meeting, threads);
        if (thread == 0) go_on(run);
        meet(meeting, threads);
    }
}

/* Drafts all chains of a draft, which has some, in one call: from the tokens [chains] before their first ones and the
   hidden states [chains][width] of the tokens before those. `begin` [chains] says where each of these tokens is stored;
   a path in it goes on for all tokens of its chain but the last. Returns 0, or 1 if there is no memory. */
EXPORT int64_t specpair_head_chains(const struct Eagle *head, const struct Pass *pass, const struct Draft *draft,
                                    const struct Segment *begin, const int64_t *token_ids, const float *hidden) {
    int64_t chains = draft->chain_count, width = head->decoder.hidden, threads = pass->thread_count;
    int64_t *numbers = malloc(chains * (3 * sizeof *numbers + sizeof(struct Segment) + sizeof(struct Chain *)));
    int64_t float_count = chains * (2 * width + draft->width) + threads * CHAIN_ROOM * draft->width;
    float *floats_of = malloc(float_count * sizeof *floats_of);
    if (!numbers || !floats_of) {
        free(numbers);
        free(floats_of);
        return 1;
    }
    struct HeadRun run = {.pass = *pass, .draft = draft, .begin = begin, .going_count = chains};
    run.hidden = floats_of;
    run.left = floats_of + chains * width;
    run.pass.logits = floats_of + 2 * chains * width;
    run.room = run.pass.logits + chains * draft->width;
    run.token_ids = numbers;
    run.positions = numbers + chains;
    run.rows = numbers + 2 * chains;
    run.segments = (struct Segment *)(numbers + 3 * chains);
    run.going = (struct Chain **)(run.segments + chains);
    run.step = (struct Step){head, &run.pass, run.hidden, run.left};
    run.pass.token_ids = run.token_ids;
    run.pass.positions = run.positions;
    run.pass.rows = run.rows;
    run.pass.segments = run.segments;
    run.pass.segment_count = chains;
    memcpy(run.hidden, hidden, chains * width * sizeof *hidden);
    for (int64_t r = 0; r < chains; r++) place_token(&run, r, draft->chains + r, token_ids[r]);
    struct HeadRun *shared = &run;
    run_together(run_head_chains, &shared, threads);
    free(numbers);
    free(floats_of);
    return 0;
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
