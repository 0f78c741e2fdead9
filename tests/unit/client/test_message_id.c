/* Unique ids: form, uniqueness over threads, clocks and months. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/rng.h"
#include "client/message_id.h"

enum { THREADS = 4, IDS_EACH = 100000 };

static const int64_t noon_ms = 1700049600000;  /* 2023-11-15 12:00:00 UTC */
static const int64_t month_ms = 1698796800000; /* 2023-11-01 */
static const int64_t next_ms = 1701388800000;  /* 2023-12-01 */

static uint64_t hex_at(const char *id, size_t at, size_t count)
{
    char text[17] = "";
    memcpy(text, id + at, count);
    return strtoull(text, NULL, 16);
}

static void maker(struct id_maker *ids)
{
    struct rng_seeded rng;
    struct env env;
    env_init_system(&env, NULL);
    rng_seeded_init(&rng, 1);
    env.rng = &rng.rng;
    id_maker_init(ids, &env, (const uint8_t[4]){192, 168, 0, 10});
}

static void id_holds_address_process_time_and_counter(void **state)
{
    (void)state;
    struct id_maker ids;
    char first[33];
    char second[33];
    maker(&ids);
    id_maker_next(&ids, noon_ms, first);
    id_maker_next(&ids, noon_ms, second);
    assert_int_equal(strlen(first), 32);
    assert_memory_equal(first, "C0A8000A", 8);
    assert_int_equal(hex_at(first, 8, 4), getpid() & 0xFFFF);
    assert_memory_equal(first, second, 28);
    assert_int_equal(hex_at(first, 20, 8), noon_ms - month_ms);
    assert_int_equal(hex_at(first, 28, 4), 0);
    assert_int_equal(hex_at(second, 28, 4), 1);
}

static void ids_rise_when_the_clock_goes_back_or_the_counter_runs_over(void **state)
{
    (void)state;
    struct id_maker ids;
    char last[33];
    char id[33];
    maker(&ids);
    id_maker_next(&ids, noon_ms, last);
    for (int i = 0; i < 70000; i++) {
        id_maker_next(&ids, noon_ms - (i % 3) * 1000, id);
        assert_true(strcmp(id, last) > 0);
        memcpy(last, id, sizeof last);
    }
    assert_int_equal(hex_at(id, 20, 8), noon_ms - month_ms + 1);
}

static void time_begins_anew_with_the_month(void **state)
{
    (void)state;
    struct id_maker ids;
    char id[33];
    maker(&ids);
    id_maker_next(&ids, next_ms - 1, id);
    assert_int_equal(hex_at(id, 20, 8), next_ms - 1 - month_ms);
    id_maker_next(&ids, next_ms + 5, id);
    assert_int_equal(hex_at(id, 20, 8), 5);
}

static struct id_maker shared;
static char (*made)[33];

static void *make_many(void *arg)
{
    size_t at = (size_t)(uintptr_t)arg * IDS_EACH;
    for (size_t i = 0; i < IDS_EACH; i++)
        id_maker_next(&shared, noon_ms + (int64_t)(i / 5000), made[at + i]);
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return memcmp(a, b, 32);
}

static void threads_never_get_the_same_id(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    made = malloc((size_t)THREADS * IDS_EACH * sizeof *made);
    assert_non_null(made);
    maker(&shared);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qsort(made, (size_t)THREADS * IDS_EACH, sizeof *made, by_text);
    for (size_t i = 1; i < (size_t)THREADS * IDS_EACH; i++)
        assert_memory_not_equal(made[i - 1], made[i], 32);
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_holds_address_process_time_and_counter),
        cmocka_unit_test(ids_rise_when_the_clock_goes_back_or_the_counter_runs_over),
        cmocka_unit_test(time_begins_anew_with_the_month),
        cmocka_unit_test(threads_never_get_the_same_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
