/* The in-flight window: exhaustively small, at random against a model, and with many threads.
 */
#include "tests/unit/base/unit.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/rng.h"
#include "client/window.h"

static struct window window_at(size_t capacity, int64_t offset)
{
    struct window window;
    assert_ok(window_init(&window, capacity));
    window_reset(&window, offset);
    return window;
}

/* Delivers [from, to) without gaps. */
static void deliver(struct window *window, int64_t from, int64_t to)
{
    int64_t offsets[4096];
    int64_t pulled;
    size_t count = (size_t)(to - from);
    for (size_t i = 0; i < count; i++)
        offsets[i] = from + (int64_t)i;
    assert_int_equal(window_admit(window, to, offsets, count, &pulled), count);
    assert_int_equal(pulled, to);
}

static void a_hole_holds_the_commit_point(void **state)
{
    (void)state;
    struct window window = window_at(64, 100);
    deliver(&window, 100, 105);
    for (int64_t offset = 101; offset < 105; offset++)
        assert_true(window_mark(&window, offset));
    assert_int_equal(window_left(&window), 100);
    assert_true(window_mark(&window, 100));
    assert_int_equal(window_left(&window), 105);
    window_fini(&window);
}

static void nothing_in_flight_commits_highest_seen_plus_one(void **state)
{
    (void)state;
    struct window window = window_at(64, 7);
    assert_int_equal(window_left(&window), 7);
    int64_t pulled;
    assert_int_equal(window_admit(&window, 20, NULL, 0, &pulled), 0);
    assert_int_equal(pulled, 20);
    assert_int_equal(window_left(&window), 20);
    window_fini(&window);
}

static void gaps_between_delivered_offsets_count_as_done(void **state)
{
    (void)state;
    struct window window = window_at(256, 0);
    const int64_t offsets[] = {3, 70, 199};
    int64_t pulled;
    assert_int_equal(window_admit(&window, 210, offsets, 3, &pulled), 3);
    assert_int_equal(window_left(&window), 3);
    assert_true(window_mark(&window, 3));
    assert_int_equal(window_left(&window), 70);
    assert_true(window_mark(&window, 199));
    assert_int_equal(window_left(&window), 70);
    assert_true(window_mark(&window, 70));
    assert_int_equal(window_left(&window), 210);
    window_fini(&window);
}

static void stale_double_and_future_marks_are_ignored(void **state)
{
    (void)state;
    struct window window = window_at(64, 10);
    deliver(&window, 10, 14);
    assert_false(window_mark(&window, 9));
    assert_false(window_mark(&window, 14));
    assert_false(window_mark(&window, -1));
    assert_false(window_mark(&window, INT64_MAX));
    assert_true(window_mark(&window, 11));
    assert_false(window_mark(&window, 11));
    assert_true(window_mark(&window, 10));
    assert_int_equal(window_left(&window), 12);
    assert_false(window_mark(&window, 11));
    deliver(&window, 14, 74); /* the same bits, a lap later */
    assert_false(window_mark(&window, 11));
    assert_int_equal(window_left(&window), 12);
    window_fini(&window);
}

static void a_full_window_takes_what_fits_and_says_where_to_go_on(void **state)
{
    (void)state;
    struct window window = window_at(64, 0);
    int64_t offsets[100];
    for (int i = 0; i < 100; i++)
        offsets[i] = i;
    int64_t pulled;
    assert_int_equal(window_admit(&window, 100, offsets, 100, &pulled), 64);
    assert_int_equal(pulled, 64);
    assert_true(window_full(&window));
    assert_int_equal(window_admit(&window, 100, offsets + 64, 36, &pulled), 0);
    assert_int_equal(pulled, 64);
    assert_true(window_mark(&window, 0));
    assert_false(window_full(&window));
    assert_int_equal(window_admit(&window, 100, offsets + 64, 36, &pulled), 1);
    assert_int_equal(pulled, 65);
    window_fini(&window);
}

static void a_gap_longer_than_the_ring_passes_when_nothing_is_in_flight(void **state)
{
    (void)state;
    struct window window = window_at(64, 5);
    int64_t pulled;
    assert_int_equal(window_admit(&window, 1000000, NULL, 0, &pulled), 0);
    assert_int_equal(pulled, 1000000);
    assert_int_equal(window_left(&window), 1000000);
    const int64_t far[] = {3000000};
    assert_int_equal(window_admit(&window, 3000001, far, 1, &pulled), 1);
    assert_int_equal(pulled, 3000001);
    assert_int_equal(window_left(&window), 3000000);
    assert_true(window_mark(&window, 3000000));
    assert_int_equal(window_left(&window), 3000001);
    window_fini(&window);
}

static void a_long_gap_behind_a_hole_is_taken_as_far_as_it_fits(void **state)
{
    (void)state;
    struct window window = window_at(64, 0);
    deliver(&window, 0, 1);
    int64_t pulled;
    assert_int_equal(window_admit(&window, 1000, NULL, 0, &pulled), 0);
    assert_int_equal(pulled, 64);
    assert_int_equal(window_left(&window), 0);
    assert_true(window_mark(&window, 0));
    assert_int_equal(window_left(&window), 64);
    window_fini(&window);
}

static void huge_offsets_work(void **state)
{
    (void)state;
    int64_t base = (INT64_C(1) << 62) + 17;
    struct window window = window_at(128, base);
    deliver(&window, base, base + 128);
    for (int64_t i = 127; i >= 0; i--) {
        assert_int_equal(window_left(&window), base);
        assert_true(window_mark(&window, base + i));
    }
    assert_int_equal(window_left(&window), base + 128);
    window_fini(&window);
}

/* All orders of finishing six messages, at every alignment within two laps. */
static void every_order_of_finishing_keeps_the_lowest(void **state)
{
    (void)state;
    enum { N = 6 };
    for (int64_t base = 0; base < 130; base++) {
        int order[N] = {0, 1, 2, 3, 4, 5};
        unsigned counters[N] = {0};
        for (int i = 0; i < N;) {
            struct window window = window_at(64, base);
            deliver(&window, base, base + N);
            bool done[N] = {false};
            for (int k = 0; k < N; k++) {
                assert_true(window_mark(&window, base + order[k]));
                done[order[k]] = true;
                int lowest = 0;
                while (lowest < N && done[lowest])
                    lowest++;
                assert_int_equal(window_left(&window), base + lowest);
            }
            window_fini(&window);
            /* Heap's algorithm, the next permutation */
            while (i < N && counters[i] >= (unsigned)i)
                counters[i++] = 0;
            if (i < N) {
                int j = i % 2 ? (int)counters[i] : 0;
                int kept = order[j];
                order[j] = order[i];
                order[i] = kept;
                counters[i]++;
                i = 1;
            }
        }
    }
}

/* ---- against a model ---- */

enum { MODEL_SPAN = 1 << 16 };

struct model {
    bool done[MODEL_SPAN];
    int64_t base, left, right;
};

static int64_t model_left(struct model *model)
{
    while (model->left < model->right && model->done[model->left - model->base])
        model->left++;
    return model->left;
}

static void model_admit(struct model *model, struct window *window, struct rng *rng)
{
    int64_t offsets[256];
    size_t count = 0;
    int64_t next = model->right + (int64_t)rng_below(rng, 200);
    for (int64_t o = model->right; o < next && count < 256; o++)
        if (rng_below(rng, 3) != 0)
            offsets[count++] = o;
    if (model_left(model) == model->right && next - model->left > (int64_t)window->capacity)
        model->left = model->right = count > 0 ? offsets[0] : next;
    int64_t room = model->left + (int64_t)window->capacity;
    int64_t end = next < room ? next : room;
    int64_t pulled;
    size_t taken = window_admit(window, next, offsets, count, &pulled);
    assert_int_equal(pulled, end);
    for (int64_t o = model->right; o < end; o++)
        model->done[o - model->base] = true;
    size_t expected = 0;
    while (expected < count && offsets[expected] < end)
        model->done[offsets[expected++] - model->base] = false;
    assert_int_equal(taken, expected);
    model->right = end;
}

static void random_runs_agree_with_a_simple_model(void **state)
{
    (void)state;
    static struct model model;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng_seeded rng;
        rng_seeded_init(&rng, seed);
        int64_t base = (int64_t)rng_below(&rng.rng, 100000);
        memset(&model, 0, sizeof model);
        model.base = model.left = model.right = base;
        struct window window = window_at((size_t)64 << (seed % 4), base);
        while (model.right - base < MODEL_SPAN - 512) {
            if (rng_below(&rng.rng, 8) == 0)
                model_admit(&model, &window, &rng.rng);
            int64_t span = model.right - model.left + 20;
            int64_t offset = model.left - 10 + (int64_t)rng_below(&rng.rng, (uint64_t)span);
            bool fresh = offset >= model.left && offset < model.right && !model.done[offset - base];
            assert_int_equal(window_mark(&window, offset), fresh);
            if (fresh)
                model.done[offset - base] = true;
            if (rng_below(&rng.rng, 4) == 0)
                assert_int_equal(window_left(&window), model_left(&model));
        }
        window_fini(&window);
    }
}

/* ---- threads ---- */

enum { THREADS = 4, THREAD_OFFSETS = 200000 };

struct race {
    struct window window;
    _Atomic int64_t claimed; /* next offset to be finished by somebody */
    _Atomic uint8_t finished[THREAD_OFFSETS];
    _Atomic bool stop;
};

static void *finisher(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->stop)) {
        int64_t offset = atomic_load(&race->claimed);
        if (offset >= window_right(&race->window) ||
            !atomic_compare_exchange_weak(&race->claimed, &offset, offset + 1))
            continue;
        if (offset % 7 == 3)
            continue; /* a gap */
        atomic_store(&race->finished[offset], 1);
        if (!window_mark(&race->window, offset))
            abort();
        window_left(&race->window);
    }
    return NULL;
}

/* Whatever the threads do, nothing below the left edge is unfinished. */
static void threads_never_move_the_edge_past_an_unfinished_offset(void **state)
{
    (void)state;
    struct race *race = calloc(1, sizeof *race);
    assert_non_null(race);
    race->window = window_at(128, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, finisher, race), 0);
    int64_t checked = 0;
    int64_t right = 0;
    while (checked < THREAD_OFFSETS) {
        int64_t offsets[50];
        size_t count = 0;
        int64_t next = right + 50 < THREAD_OFFSETS ? right + 50 : THREAD_OFFSETS;
        for (int64_t o = right; o < next; o++)
            if (o % 7 != 3)
                offsets[count++] = o;
        window_admit(&race->window, next, offsets, count, &right);
        int64_t left = window_left(&race->window);
        for (; checked < left; checked++)
            if (checked % 7 != 3 && !atomic_load(&race->finished[checked]))
                fail_msg("the edge is at %lld, %lld is unfinished", (long long)left,
                         (long long)checked);
    }
    atomic_store(&race->stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    window_fini(&race->window);
    free(race);
}

/* A figure, not a test: WINDOW_BENCH=1 prints what a mark costs. */
static void figure_of_marking(void **state)
{
    (void)state;
    if (!getenv("WINDOW_BENCH"))
        skip();
    struct window window = window_at(4096, 0);
    int64_t begin_ns = clock_mono_ns(clock_system());
    enum { ROUNDS = 20000, BATCH = 2000 };
    int64_t spent_ns = 0;
    for (int64_t round = 0; round < ROUNDS; round++) {
        int64_t first = round * BATCH;
        deliver(&window, first, first + BATCH);
        int64_t from_ns = clock_mono_ns(clock_system());
        for (int64_t o = first + 1; o < first + BATCH; o++)
            window_mark(&window, o);
        spent_ns += clock_mono_ns(clock_system()) - from_ns;
        assert_int_equal(window_left(&window), first);
        window_mark(&window, first);
    }
    print_message("mark: %.1f ns, with a hole open; all: %.1f ns a message\n",
                  (double)spent_ns / ((double)ROUNDS * (BATCH - 1)),
                  (double)(clock_mono_ns(clock_system()) - begin_ns) / ((double)ROUNDS * BATCH));
    window_fini(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hole_holds_the_commit_point),
        cmocka_unit_test(nothing_in_flight_commits_highest_seen_plus_one),
        cmocka_unit_test(gaps_between_delivered_offsets_count_as_done),
        cmocka_unit_test(stale_double_and_future_marks_are_ignored),
        cmocka_unit_test(a_full_window_takes_what_fits_and_says_where_to_go_on),
        cmocka_unit_test(a_gap_longer_than_the_ring_passes_when_nothing_is_in_flight),
        cmocka_unit_test(a_long_gap_behind_a_hole_is_taken_as_far_as_it_fits),
        cmocka_unit_test(huge_offsets_work),
        cmocka_unit_test(every_order_of_finishing_keeps_the_lowest),
        cmocka_unit_test(random_runs_agree_with_a_simple_model),
        cmocka_unit_test(threads_never_move_the_edge_past_an_unfinished_offset),
        cmocka_unit_test(figure_of_marking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
