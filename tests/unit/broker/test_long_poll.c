/* broker/long_poll: parked pulls are woken once, by what concerns them, and never forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/names.h"
#include "broker/long_poll.h"
#include "tests/sim/sim_env.h"

enum { PULLS = 300 };

struct world {
    struct sim_env sim;
    struct long_poll *polls;
    int64_t end; /* of every queue */
    uint32_t resumed, dropped;
    struct parked_pull *last;
    struct parked_pull pulls[PULLS];
};

static int64_t queue_end(void *arg, const char *topic, int32_t queue_id)
{
    (void)topic;
    (void)queue_id;
    return ((struct world *)arg)->end;
}

static void resume(void *arg, struct parked_pull *parked)
{
    struct world *world = arg;
    world->resumed++;
    world->last = parked;
}

static void drop(void *arg, struct parked_pull *parked)
{
    struct world *world = arg;
    world->dropped++;
    world->last = parked;
}

static int setup(void **state)
{
    struct world *world = test_calloc(1, sizeof *world);
    struct long_poll_options options = {
        .max_parked = 200, .arg = world, .queue_end = queue_end, .resume = resume, .drop = drop};
    sim_env_init(&world->sim, 1);
    assert_int_equal(long_poll_create(&world->sim.env, &options, &world->polls), TERN_OK);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    long_poll_resume_all(world->polls);
    assert_int_equal(long_poll_parked(world->polls), 0);
    long_poll_destroy(world->polls);
    sim_env_fini(&world->sim);
    test_free(world);
    return 0;
}

static struct parked_pull *fill(struct world *world, size_t index, const char *topic,
                                int32_t queue_id, int64_t wait_ms)
{
    struct parked_pull *pull = &world->pulls[index];
    *pull = (struct parked_pull){
        .topic = topic,
        .queue_id = queue_id,
        .offset = world->end,
        .deadline_ns = clock_mono_ns(world->sim.env.clock) + ms_to_ns(wait_ms),
        .peer_id = index % 3 + 1,
    };
    return pull;
}

static struct parked_pull *of_group(struct parked_pull *pull, const char *group)
{
    pull->group = group;
    return pull;
}

static void arrive(struct world *world, const char *topic, int32_t queue_id, const char *tag)
{
    int64_t code = tag ? tags_code(tag, strlen(tag)) : 0;
    struct store_arrival arrival = {.topic = topic,
                                    .queue_id = queue_id,
                                    .first_off = world->end,
                                    .count = 1,
                                    .tags_codes = &code};
    world->end++;
    long_poll_arrival(world->polls, &arrival);
}

static void arrival_wakes_the_pulls_of_its_queue_only(void **state)
{
    struct world *world = *state;
    assert_true(long_poll_park(world->polls, fill(world, 0, "T", 0, 15000)));
    assert_true(long_poll_park(world->polls, fill(world, 1, "T", 1, 15000)));
    assert_true(long_poll_park(world->polls, fill(world, 2, "U", 0, 15000)));
    arrive(world, "T", 1, NULL);
    assert_int_equal(world->resumed, 1);
    assert_ptr_equal(world->last, &world->pulls[1]);
    assert_int_equal(long_poll_parked(world->polls), 2);
}

/* OF-17: the message came between the look and the parking. */
static void pull_does_not_park_when_the_end_has_moved(void **state)
{
    struct world *world = *state;
    struct parked_pull *pull = fill(world, 0, "T", 0, 15000);
    world->end++;
    assert_false(long_poll_park(world->polls, pull));
    assert_int_equal(long_poll_parked(world->polls), 0);
    assert_int_equal(world->resumed, 0);
}

static void tag_that_does_not_match_leaves_the_pull_parked(void **state)
{
    struct world *world = *state;
    struct subscription *sub;
    struct tern_error err;
    assert_int_equal(subscription_parse("A || B", 6, &sub, &err), TERN_OK);
    struct parked_pull *pull = fill(world, 0, "T", 0, 15000);
    pull->subscription = sub;
    assert_true(long_poll_park(world->polls, pull));
    arrive(world, "T", 0, "C");
    assert_int_equal(world->resumed, 0);
    arrive(world, "T", 0, "B");
    assert_int_equal(world->resumed, 1);
    subscription_free(sub);
}

static void pull_is_resumed_when_its_time_is_up(void **state)
{
    struct world *world = *state;
    assert_true(long_poll_park(world->polls, fill(world, 0, "T", 0, 15000)));
    assert_true(long_poll_park(world->polls, fill(world, 1, "T", 0, 1000)));
    sim_run_for(world->sim.sched, ms_to_ns(990));
    assert_int_equal(world->resumed, 0);
    sim_run_for(world->sim.sched, ms_to_ns(150));
    assert_int_equal(world->resumed, 1);
    assert_ptr_equal(world->last, &world->pulls[1]);
    sim_run_for(world->sim.sched, ms_to_ns(14100));
    assert_int_equal(world->resumed, 2);
}

static void gone_peer_takes_its_pulls_along(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < 9; i++)
        assert_true(long_poll_park(world->polls, fill(world, i, "T", (int32_t)i, 15000)));
    long_poll_peer_gone(world->polls, 2);
    assert_int_equal(world->dropped, 3);
    assert_int_equal(world->resumed, 0);
    assert_int_equal(long_poll_parked(world->polls), 6);
}

static void full_table_answers_the_oldest_early(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < PULLS; i++)
        assert_true(long_poll_park(world->polls, fill(world, i, "T", (int32_t)i, 15000)));
    assert_in_range(long_poll_parked(world->polls), 100, 200);
    assert_int_equal(world->resumed + long_poll_parked(world->polls), PULLS);
}

static void nothing_parks_after_the_end(void **state)
{
    struct world *world = *state;
    assert_true(long_poll_park(world->polls, fill(world, 0, "T", 0, 15000)));
    long_poll_resume_all(world->polls);
    assert_int_equal(world->resumed, 1);
    assert_false(long_poll_park(world->polls, fill(world, 1, "T", 0, 15000)));
}

/* R-9, OF-07: members go on from a reset at once, not when their pulls have waited long enough. */
static void a_reset_sends_home_the_pulls_of_its_group_and_queue(void **state)
{
    struct world *world = *state;
    assert_true(long_poll_park(world->polls, of_group(fill(world, 0, "T", 0, 15000), "g")));
    assert_true(long_poll_park(world->polls, of_group(fill(world, 1, "T", 0, 15000), "other")));
    assert_true(long_poll_park(world->polls, of_group(fill(world, 2, "T", 1, 15000), "g")));
    assert_true(long_poll_park(world->polls, fill(world, 3, "T", 0, 15000)));
    long_poll_reset(world->polls, "g", "T", 0);
    assert_int_equal(world->resumed, 1);
    assert_ptr_equal(world->last, &world->pulls[0]);
    assert_int_equal(long_poll_parked(world->polls), 3);
}

static void a_deletion_sends_home_the_pulls_of_its_group_or_topic(void **state)
{
    struct world *world = *state;
    assert_true(long_poll_park(world->polls, of_group(fill(world, 0, "T", 0, 15000), "g")));
    assert_true(long_poll_park(world->polls, of_group(fill(world, 1, "T", 1, 15000), "other")));
    assert_true(long_poll_park(world->polls, of_group(fill(world, 2, "U", 0, 15000), "g")));
    assert_true(long_poll_park(world->polls, fill(world, 3, "T", 0, 15000))); /* reads for nobody */
    uint64_t before = long_poll_resets(world->polls);
    long_poll_reset_all(world->polls, "g", "U");
    assert_ptr_equal(world->last, &world->pulls[2]);
    long_poll_reset_all(world->polls, "other", "");
    assert_ptr_equal(world->last, &world->pulls[1]);
    long_poll_reset_all(world->polls, "", "U");
    assert_int_equal(world->resumed, 2);
    long_poll_reset_all(world->polls, "", "");
    assert_ptr_equal(world->last, &world->pulls[0]);
    assert_int_equal(world->resumed, 3);
    assert_int_equal(long_poll_parked(world->polls), 1);
    assert_true(long_poll_resets(world->polls) == before + 4);
}

static void a_pull_that_looked_before_a_reset_is_not_parked_after_it(void **state)
{
    struct world *world = *state;
    struct parked_pull *pull = of_group(fill(world, 0, "T", 0, 15000), "g");
    pull->resets = long_poll_resets(world->polls);
    long_poll_reset(world->polls, "g", "T", 0);
    assert_false(long_poll_park(world->polls, pull));
    pull->resets = long_poll_resets(world->polls);
    assert_true(long_poll_park(world->polls, pull));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arrival_wakes_the_pulls_of_its_queue_only, setup, teardown),
        cmocka_unit_test_setup_teardown(pull_does_not_park_when_the_end_has_moved, setup, teardown),
        cmocka_unit_test_setup_teardown(tag_that_does_not_match_leaves_the_pull_parked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(pull_is_resumed_when_its_time_is_up, setup, teardown),
        cmocka_unit_test_setup_teardown(gone_peer_takes_its_pulls_along, setup, teardown),
        cmocka_unit_test_setup_teardown(full_table_answers_the_oldest_early, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_parks_after_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reset_sends_home_the_pulls_of_its_group_and_queue, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_deletion_sends_home_the_pulls_of_its_group_or_topic,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_pull_that_looked_before_a_reset_is_not_parked_after_it,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
