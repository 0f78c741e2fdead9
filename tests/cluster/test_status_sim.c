/* What a broker says of itself when its wall clock is set, on virtual time. SIM_LOG=1 prints the
 * log. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/cluster/set_world.h"

enum { MINUTE_MS = 60000 };

static struct world world;

/* The number that brokerStatus gives under this key. */
static int64_t asked(const char *key)
{
    Tern__Wire__BrokerStatusRequest body = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    char value[32] = "";
    request.body_case = TERN__WIRE__REQUEST__BODY_BROKER_STATUS;
    request.broker_status = &body;
    assert_int_equal(world_ask(&world, world.master, "asker", &request, NULL, 0, 3000, &call),
                     TERN_OK);
    const Tern__Wire__BrokerStatusResponse *answer = call->response->broker_status;
    for (size_t i = 0; i < answer->n_entries; i++)
        if (!strcmp(answer->entries[i]->key, key))
            snprintf(value, sizeof value, "%s", answer->entries[i]->value);
    world_answer_free(call);
    if (!*value)
        fail_msg("brokerStatus has no %s", key);
    return strtoll(value, NULL, 10);
}

static void near(int64_t value, int64_t expected)
{
    if (value < expected || value > expected + 100)
        fail_msg("%" PRId64 ", expected %" PRId64, value, expected);
}

/* How long it has run does not depend on the wall clock, and what time it is not on the start. */
static void run_time_and_present_survive_a_clock_that_is_set(void **state)
{
    (void)state;
    world_prepare(&world, 1);
    struct clock *clock = world.cluster.sim.env.clock;
    world_start(&world);
    int64_t booted_ms = asked("bootTimestamp");
    static const int64_t set_ms[] = {0, -60 * MINUTE_MS, 180 * MINUTE_MS};
    int64_t begin_ns = clock_mono_ns(clock) - ms_to_ns(asked("runtimeMs"));
    for (size_t i = 0; i < sizeof set_ms / sizeof set_ms[0]; i++) {
        sim_clock_set_wall(&world.cluster.sim.clock, clock_wall_ms(clock) + set_ms[i]);
        world_run_ms(&world, MINUTE_MS);
        int64_t ran_ms = (clock_mono_ns(clock) - begin_ns) / 1000000;
        near(asked("runtimeMs"), ran_ms);
        int64_t now_ms = clock_wall_ms(clock);
        near(asked("currentTimestamp"), now_ms);
        assert_int_equal(asked("bootTimestamp"), booted_ms);
    }
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_time_and_present_survive_a_clock_that_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
