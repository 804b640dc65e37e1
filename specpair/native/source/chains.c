/* Draws whole proposals in one call: a token for each, then the pass that feeds these, and so on. It ends when nobody
waits for those that are left, though somebody did at first, or, if it can be stopped, when it is or half of them are
over: the others go on in a later call.

The rows of the passes, the probabilities, counts and draws are those of the calls that do one step each, to the bit. A
head with fewer tokens is drawn from as it is; its places become ids when a token is drawn. */

#include "chains.h"
#include "pass.h"
#include "racing.h"
#include "softmax.h"
#include "threads.h"
#include "vectors.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* What the threads share. Chains that are not over are in order, one for each row. */
struct Run {
    const struct Model *model;
    const struct Draft *draft;
    struct Pass pass;
    struct Chain **going;
    int64_t going_count, has_awaited;
    int64_t due;   /* when the step may end; 0 without a pace */
    int64_t ended; /* when it did: the processor wakes up later */
    const float *rows;
    int64_t stride;
    float *logits, *room; /* [chains][width], [threads][CHAIN_ROOM][width] */
    struct Segment *segments;
    int64_t *token_ids, *positions, *places;
};

void look_at(const float *logits, int64_t width, const int64_t *token_ids, struct Outlook *outlook) {
    double *speeds = outlook->speeds, sum = 0.0;
    for (int64_t place = 0; place < width; place++) {
        int64_t i = outlook->size;
        if (i == outlook->most && !(logits[place] > speeds[i - 1])) continue;
        if (i < outlook->most) outlook->size++;
        else i--;
        for (; i && speeds[i - 1] < logits[place]; i--) {
            speeds[i] = speeds[i - 1];
            outlook->tokens[i] = outlook->tokens[i - 1];
        }
        speeds[i] = logits[place];
        outlook->tokens[i] = token_ids ? token_ids[place] : place;
    }
    for (int64_t i = outlook->size - 1; i >= 0; i--) sum += speeds[i] = exp(speeds[i] - speeds[0]);
    for (int64_t i = 0; i < outlook->size; i++) speeds[i] /= sum;
}

/* The place of a token that is drawn from counts, and how many tokens they are of; 0 if the row is not finite. */
static int64_t draw_counted(const struct Draft *draft, struct Chain *chain, const float *row, float *room,
                            int64_t *place) {
    uint32_t *ids = chain->entries + 2 * draft->most * chain->length;
    float *probabilities = room + ROOM * draft->width;
    soften(row, chain->width, (float)chain->temperature, probabilities);
    int64_t drawn, size = draw_row(probabilities, chain->width, draft->mass, draft->most, chain->chosen[chain->length],
                                   room, ids, ids + draft->most, &drawn);
    if (!size) return 0;
    *place = ids[drawn];
    if (draft->token_ids)
        for (int64_t i = 0; i < size; i++) ids[i] = (uint32_t)draft->token_ids[ids[i]];
    return size;
}

/* Where the outlook of the next row belongs. */
static struct Outlook next_outlook(const struct Chain *chain) {
    int64_t first = chain->length * chain->look_most;
    return (struct Outlook){chain->look_most, 0, chain->look_tokens + first, chain->look_shares + first};
}

/* The place of the next token in a row, and how many tokens it was drawn from; 0 if the row is not finite. */
static int64_t draw_place(const struct Draft *draft, struct Chain *chain, const float *row, float *room, int64_t *place) {
    if (!chain->width) return 0; /* none of a head's tokens is the target's */
    struct Outlook outlook = next_outlook(chain), *looks = chain->look_most ? &outlook : 0;
    if (chain->temperature == 0.0) {
        *place = likeliest_place(row, chain->width);
        if (*place < 0) return 0;
        if (looks) look_at(row, chain->width, draft->token_ids, looks);
    } else if (chain->is_coupled) {
        soften(row, chain->width, (float)chain->temperature, room);
        if (room[0] != room[0]) return 0;
        uint64_t position = (uint64_t)(chain->position + chain->length);
        *place = first_to_arrive(room, chain->width, draft->token_ids, chain->seed, position, looks);
    } else {
        return draw_counted(draft, chain, row, room, place);
    }
    if (looks) chain->look_sizes[chain->length] = outlook.size;
    return 1;
}

/* Takes as the first token the one of the chain's rank in the race of a step: the target's own token of that step, as far as
   its row can tell. Ends the chain if there is none. */
static void foresee_first(const struct Draft *draft, struct Chain *chain, const float *row, float *room) {
    struct Outlook outlook = next_outlook(chain);
    if (chain->width) soften(row, chain->width, (float)chain->temperature, room);
    if (chain->width && room[0] == room[0])
        first_to_arrive(room, chain->width, draft->token_ids, chain->seed, OWN_TOKEN_OF(chain->race_step), &outlook);
    chain->is_over = chain->rank >= outlook.size || chain->count == 1;
    if (chain->rank >= outlook.size) return;
    chain->look_sizes[0] = outlook.size;
    chain->sizes[0] = 0; /* it comes of no counts */
    chain->tokens[chain->length++] = outlook.tokens[chain->rank];
}

void draw_next(const struct Draft *draft, struct Chain *chain, const float *row, float *room) {
    if (chain->race_step >= 0 && !chain->length) {
        foresee_first(draft, chain, row, room);
        return;
    }
    int64_t place, size = draw_place(draft, chain, row, room, &place), index = chain->length;
    int64_t is_ranked = chain->rank && !index;
    if (!size || (is_ranked && chain->rank >= chain->look_sizes[0])) {
        chain->is_over = 1;
        return;
    }
    chain->sizes[index] = size;
    int64_t drawn = draft->token_ids ? draft->token_ids[place] : place;
    chain->tokens[index] = is_ranked ? chain->look_tokens[chain->rank] : drawn;
    chain->length++;
    chain->is_over = chain->length == chain->count;
    if (chain->min_confidence == 0.0) return;
    soften(row, chain->width, 1.0f, room);
    chain->shares[index] = room[place];
    chain->confidence *= chain->shares[index];
    chain->is_over |= chain->confidence < chain->min_confidence;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void sleep_until(int64_t due) {
    for (int64_t left; due && (left = due - now()) > 0;) {
        struct timespec time = {left / 1000000000, left % 1000000000};
        nanosleep(&time, 0); /* a signal may end it early */
    }
}

/* Whether no further step is drawn: it is wanted elsewhere, nobody waits any more, or half of the proposals are whole and
   can be handed over before the others are. */
static int64_t is_to_stop(const struct Draft *draft, int64_t has_awaited, int64_t are_awaited, int64_t left) {
    if (draft->stop && (*draft->stop || 2 * left <= draft->chain_count)) return 1;
    return has_awaited && !are_awaited;
}

/* Makes the pass that feeds the tokens of the chains that go on. */
static void feed(struct Run *run) {
    const struct Draft *draft = run->draft;
    int64_t kept = 0, are_awaited = 0;
    for (int64_t r = 0; r < run->going_count; r++) {
        struct Chain *chain = run->going[r];
        if (chain->is_over) continue;
        int64_t position = chain->position + chain->length - 1;
        int64_t start = chain->path ? chain->base : position;
        run->segments[kept] =
            (struct Segment){chain->keys, chain->values, chain->capacity, start, 1, kept, chain->path};
        run->token_ids[kept] = chain->tokens[chain->length - 1];
        run->positions[kept] = position;
        run->places[kept] = kept;
        run->going[kept++] = chain;
        are_awaited |= chain->is_awaited;
    }
    if (is_to_stop(draft, run->has_awaited, are_awaited, kept)) kept = 0;
    if (run->due) run->due = run->ended + draft->pass_time + kept * draft->row_time;
    run->going_count = run->pass.token_count = run->pass.segment_count = run->pass.row_count = kept;
    run->rows = run->logits;
    run->stride = run->draft->width;
}

static void run_chains(const void *work, struct Meeting *meeting, int thread, int threads) {
    struct Run *run = *(struct Run *const *)work; /* the first thread changes it while the others wait */
    float *room = run->room + (int64_t)thread * CHAIN_ROOM * run->draft->width;
    for (;;) {
        int64_t due = run->due;
        for (int64_t r = thread; r < run->going_count; r += threads)
            draw_next(run->draft, run->going[r], run->rows + r * run->stride, room);
        meet(meeting, threads);
        int64_t drawn = now();
        sleep_until(due);
        if (thread == 0) {
            run->ended = drawn > due ? drawn : due;
            feed(run);
        }
        meet(meeting, threads);
        if (!run->going_count) return;
        run_pass(run->model, &run->pass, meeting, thread, threads);
        meet(meeting, threads);
    }
}

/* Of a head with fewer tokens only theirs are looked at. */
static void take_first(struct Run *run) {
    const struct Draft *draft = run->draft;
    run->rows = draft->first;
    run->stride = draft->first_stride;
    if (!draft->token_ids) return;
    for (int64_t r = 0; r < draft->chain_count; r++)
        for (int64_t i = 0; i < draft->width; i++)
            run->logits[r * draft->width + i] = draft->first[r * draft->first_stride + draft->token_ids[i]];
    run->rows = run->logits;
    run->stride = draft->width;
}

/* Draws the chains of a draft, which has some. `pass` has the threads and the memory for a token of each. Returns 0, or 1
   if there is no memory. */
EXPORT int64_t specpair_draw_chains(const struct Model *model, const struct Pass *pass, const struct Draft *draft) {
    int64_t chains = draft->chain_count, threads = pass->thread_count;
    int64_t *numbers = malloc(chains * (3 * sizeof *numbers + sizeof(struct Segment) + sizeof(struct Chain *)));
    float *floats_of = malloc((chains + threads * CHAIN_ROOM) * draft->width * sizeof *floats_of);
    if (!numbers || !floats_of) {
        free(numbers);
        free(floats_of);
        return 1;
    }
    struct Run run = {.model = model, .draft = draft, .pass = *pass, .going_count = chains};
    run.logits = floats_of;
    run.room = floats_of + chains * draft->width;
    run.token_ids = numbers;
    run.positions = numbers + chains;
    run.places = numbers + 2 * chains;
    run.segments = (struct Segment *)(numbers + 3 * chains);
    run.going = (struct Chain **)(run.segments + chains);
    run.due = draft->due;
    for (int64_t r = 0; r < chains; r++) {
        run.going[r] = draft->chains + r;
        run.has_awaited |= draft->chains[r].is_awaited;
    }
    run.pass.token_ids = run.token_ids;
    run.pass.positions = run.positions;
    run.pass.rows = run.places;
    run.pass.segments = run.segments;
    run.pass.logits = run.logits;
    take_first(&run);
    struct Run *shared = &run;
    run_together(run_chains, &shared, threads);
    free(numbers);
    free(floats_of);
    return 0;
}
