/*
 * Processes that are killed under load. The program runs itself as the victim. Built twice: with
 * the shim, as daemons are, and without, as applications of the client library are.
 */
#include "tests/unit/rpc/rpc_world.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPELINED = 128, BODY_BYTES = 1024, CLIENT_ROUNDS = 60, SERVER_ROUNDS = 15 };

extern char **environ;

static struct world world;
static struct echo echo;

#if defined(UNGUARDED) && defined(__SANITIZE_ADDRESS__)
/* What NNG does not let go is left behind on purpose; whatever ASAN_OPTIONS says of leaks. */
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
    return 1;
}
#endif

/* ---- victims ---- */

/* Calls as fast as it can, with PIPELINED calls under way. */
struct caller {
    struct dialled dialled;
    _Atomic bool stop;
    _Atomic uint32_t answered, lost, under_way;
};

static void call_again(struct caller *caller);

static void on_answer(void *arg, enum tern_code status, struct link_msg *reply)
{
    struct caller *caller = arg;
    link_msg_free(world.link, reply);
    atomic_fetch_add(status == TERN_OK ? &caller->answered : &caller->lost, 1);
    if (!atomic_load(&caller->stop) && status != TERN_CANCELED)
        call_again(caller);
    atomic_fetch_sub(&caller->under_way, 1);
}

static void call_again(struct caller *caller)
{
    struct link_msg *msg;
    if (link_msg_alloc(world.link, BODY_BYTES, &msg) != TERN_OK)
        abort();
    memset(link_msg_body(world.link, msg), 'x', BODY_BYTES);
    atomic_fetch_add(&caller->under_way, 1);
    link_call(world.link, caller->dialled.conn, msg,
              clock_mono_ns(world.env.clock) + ms_to_ns(5000), on_answer, caller);
}

static void caller_start(struct caller *caller, const char *address)
{
    memset(caller, 0, sizeof *caller);
    dial_start(&caller->dialled, &world, address, 0);
    for (int i = 0; i < PIPELINED; i++)
        call_again(caller);
}

static int be_victim(const char *role, const char *address)
{
    static struct caller caller;
    world_init(&world);
    if (strcmp(role, "client") == 0)
        caller_start(&caller, address);
    else
        echo_start(&echo, &world,
                   &(struct link_listen_options){.address = address,
                                                 .max_message_bytes = WORLD_MESSAGE_MAX});
    pause();
    return 0;
}

static pid_t spawn_victim(const char *role, const char *address)
{
    char self[] = "/proc/self/exe";
    char role_arg[16];
    char address_arg[64];
    char *arguments[] = {self, role_arg, address_arg, NULL};
    pid_t pid;
    snprintf(role_arg, sizeof role_arg, "%s", role);
    snprintf(address_arg, sizeof address_arg, "%s", address);
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, arguments, environ), 0);
    return pid;
}

static void kill_victim(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- tests ---- */

static int set_up(void **state)
{
    (void)state;
    world_init(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

#ifndef UNGUARDED
static void every_killed_client_is_noticed(void **state)
{
    (void)state;
    echo_start(&echo, &world, NULL);
    for (uint32_t round = 0; round < CLIENT_ROUNDS; round++) {
        uint32_t before = atomic_load(&echo.requests);
        pid_t pid = spawn_victim("client", echo.address);
        world_wait(&world, &echo.requests, before + 200);
        usleep(1000 * (round % 7));
        kill_victim(pid);
        world_wait(&world, &echo.downs, round + 1);
        assert_int_equal(atomic_load(&echo.ups), round + 1);
    }
    echo_stop(&echo);
}
#endif

static void client_goes_on_after_every_killed_server(void **state)
{
    (void)state;
    static struct caller caller;
    caller_start(&caller, world.address);
    for (uint32_t round = 0; round < SERVER_ROUNDS; round++) {
        uint32_t before = atomic_load(&caller.answered);
        pid_t pid = spawn_victim("server", world.address);
        world_wait(&world, &caller.answered, before + 200);
        usleep(1000 * (round % 7));
        kill_victim(pid);
    }
    atomic_store(&caller.stop, true);
    dial_stop(&caller.dialled);
    assert_int_equal(atomic_load(&caller.under_way), 0);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return be_victim(argv[1], argv[2]);
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
#ifndef UNGUARDED
        TEST_(every_killed_client_is_noticed),
#endif
        TEST_(client_goes_on_after_every_killed_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
