/*
 * mqnamesrv as a process, over real connections on loopback: start, readiness, brokers that come
 * and whose connection dies, hang-ups and garbage on its port, KV over a restart, clean stop. The
 * real clock runs here; whoever waits for something asks again until it is so, up to PATIENCE_MS.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/sched.h"
#include "rpc/client.h"
#include "tests/unit/base/unit.h"

#define CODE(name) TERN__WIRE__CODE__##name

enum { PATIENCE_MS = 15000, TOPICS_MANY = 5000, HANGUPS = 1000 };

struct daemon {
    pid_t pid;
    FILE *out; /* its stdout */
    char address[64];
};

/* One connection of its own to the nameserver. */
struct caller {
    struct rpc_client *client;
    struct rpc_peer *peer;
};

struct world {
    struct env env;
    struct link *link;
    char dir[64];
    struct daemon ns;
};

static bool in_time(int64_t since_ns)
{
    return clock_mono_ns(clock_system()) - since_ns < ms_to_ns(PATIENCE_MS);
}

/* Starts mqnamesrv with these options; its stdout is read, its stderr goes to `err_path`. */
static void spawn(struct daemon *daemon, const char *const *args, const char *err_path)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid == 0) {
        const char *argv[16] = {"mqnamesrv"};
        for (size_t i = 0; args[i]; i++)
            argv[i + 1] = args[i];
        int err = open(err_path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(fds[1], STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        close(fds[0]);
        execv(MQNAMESRV_PATH, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fds[1]);
    daemon->out = fdopen(fds[0], "r");
    assert_non_null(daemon->out);
}

/* Its exit status; -1 when it ended by a signal. */
static int wait_end(struct daemon *daemon)
{
    int status;
    assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
    fclose(daemon->out);
    daemon->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void start(struct world *w, const char *listen)
{
    char kv[128], err[128], line[128];
    snprintf(kv, sizeof kv, "kvConfigPath=%s/kvConfig.json", w->dir);
    snprintf(err, sizeof err, "%s/log", w->dir);
    const char *args[] = {"-o", listen, "-o", kv, NULL};
    spawn(&w->ns, args, err);
    assert_non_null(fgets(line, sizeof line, w->ns.out));
    assert_int_equal(sscanf(line, "mqnamesrv ready %63s", w->ns.address), 1);
}

static int stop(struct world *w, int signo)
{
    int64_t since = clock_mono_ns(clock_system());
    assert_int_equal(kill(w->ns.pid, signo), 0);
    int status = wait_end(&w->ns);
    assert_true(in_time(since));
    return status;
}

static int set_up(void **state)
{
    static struct world world;
    memset(&world, 0, sizeof world);
    env_init_system(&world.env, NULL);
    assert_ok(link_nng_create(&world.env, &world.link, NULL));
    snprintf(world.dir, sizeof world.dir, "/tmp/ternmq-namesrv-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    start(&world, "listenPort=0");
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    static const char *const files[] = {
        "kvConfig.json", "kvConfig.json.bak", "kvConfig.json.meta", "kvConfig.json.lock", "log",
        "other"};
    char path[128];
    if (w->ns.pid)
        assert_int_equal(stop(w, SIGTERM), 0);
    link_destroy(w->link);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", w->dir, files[i]);
        unlink(path);
    }
    return rmdir(w->dir);
}

static void caller_open(struct world *w, struct caller *caller)
{
    struct rpc_client_options options = {.max_message_bytes = frame_max_bytes(0),
                                         .connect_wait_ms = PATIENCE_MS,
                                         .reconnect_min_ms = 10,
                                         .reconnect_max_ms = 100,
                                         .client_id = "test"};
    assert_ok(rpc_client_create(&w->env, w->link, &options, &caller->client));
    assert_ok(rpc_peer_get(caller->client, w->ns.address, &caller->peer, NULL));
}

static void caller_close(struct caller *caller)
{
    rpc_peer_unref(caller->peer);
    rpc_client_destroy(caller->client);
}

/* Asks and returns the answer's code; the call too when wanted. */
static int32_t ask(struct caller *caller, TernRequest *request, struct rpc_call **out)
{
    struct tern_error err = {0};
    struct rpc_call *call = NULL;
    enum tern_code code = rpc_call_wait(caller->peer, request, NULL, 0, PATIENCE_MS, &call, &err);
    if (!call)
        fail_msg("no answer: %s %s", tern_code_name(code), err.text);
    int32_t answer = call->response->code;
    if (out)
        *out = call;
    else
        rpc_call_unref(call);
    return answer;
}

static ProtobufCBinaryData text(const char *value)
{
    return frame_bytes(value, strlen(value));
}

static void register_broker(struct caller *caller, Tern__Wire__TopicConfig *topics, size_t count)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RegisterBrokerRequest body = TERN__WIRE__REGISTER_BROKER_REQUEST__INIT;
    static Tern__Wire__TopicConfig *pointers[TOPICS_MANY];
    for (size_t i = 0; i < count; i++)
        pointers[i] = &topics[i];
    body.cluster_name = text("DefaultCluster");
    body.broker_name = text("broker-a");
    body.address = text("127.0.0.1:10911");
    body.store_uuid = text("0123456789abcdef");
    body.topics_version = 1;
    body.has_topics = true;
    body.topics = pointers;
    body.n_topics = count;
    request.body_case = TERN__WIRE__REQUEST__BODY_REGISTER_BROKER;
    request.register_broker = &body;
    assert_int_equal(ask(caller, &request, NULL), CODE(SUCCESS));
}

static void register_topic(struct caller *caller, const char *name)
{
    Tern__Wire__TopicConfig topic = TERN__WIRE__TOPIC_CONFIG__INIT;
    topic.name = text(name);
    topic.read_queues = topic.write_queues = 4;
    topic.perm = 6;
    register_broker(caller, &topic, 1);
}

static int32_t route(struct caller *caller, const char *topic)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    body.topic = text(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &body;
    return ask(caller, &request, NULL);
}

static int32_t kv(struct caller *caller, Tern__Wire__KvRequest__Operation operation,
                  const char *value)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    body.operation = operation;
    body.namespace_ = (char *)(uintptr_t) "N";
    body.key = (char *)(uintptr_t) "k";
    body.value = (char *)(uintptr_t)value;
    request.body_case = TERN__WIRE__REQUEST__BODY_KV;
    request.kv = &body;
    return ask(caller, &request, NULL);
}

/* N-1 */
static void broker_whose_connection_closes_leaves_the_route_at_once(void **state)
{
    struct world *w = *state;
    struct caller broker, client;
    caller_open(w, &broker);
    caller_open(w, &client);
    register_topic(&broker, "T");
    assert_int_equal(route(&client, "T"), CODE(SUCCESS));
    caller_close(&broker);
    int64_t since = clock_mono_ns(clock_system());
    while (route(&client, "T") != CODE(TOPIC_NOT_EXIST))
        assert_true(in_time(since));
    caller_close(&client);
}

/* ST-20, N-3: an answered change survives kill -9 */
static void kv_survives_a_kill(void **state)
{
    struct world *w = *state;
    struct caller tool;
    caller_open(w, &tool);
    assert_int_equal(kv(&tool, TERN__WIRE__KV_REQUEST__OPERATION__PUT, "v"), CODE(SUCCESS));
    caller_close(&tool);
    assert_int_equal(stop(w, SIGKILL), -1);
    start(w, "listenPort=0");
    caller_open(w, &tool);
    assert_int_equal(kv(&tool, TERN__WIRE__KV_REQUEST__OPERATION__GET, ""), CODE(SUCCESS));
    caller_close(&tool);
}

static void hang_up(const struct sockaddr_in *address, size_t garbage_bytes)
{
    static const char garbage[] = "GARBAGE";
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)address, sizeof *address), 0);
    if (garbage_bytes > 0)
        assert_true(send(fd, garbage, garbage_bytes, MSG_NOSIGNAL) > 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}

/* NN-01 */
static void client_attaches_after_a_thousand_hang_ups_in_the_handshake(void **state)
{
    struct world *w = *state;
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct caller client;
    const char *colon = strchr(w->ns.address, ':');
    address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < HANGUPS; i++)
        hang_up(&address, i % 8);
    int64_t since = clock_mono_ns(clock_system());
    caller_open(w, &client);
    assert_int_equal(route(&client, "T"), CODE(TOPIC_NOT_EXIST));
    assert_true(in_time(since));
    caller_close(&client);
}

static void thousands_of_topics_are_registered_and_listed(void **state)
{
    struct world *w = *state;
    static Tern__Wire__TopicConfig topics[TOPICS_MANY];
    static char names[TOPICS_MANY][24];
    struct caller broker;
    struct rpc_call *call;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__TopicListRequest body = TERN__WIRE__TOPIC_LIST_REQUEST__INIT;
    for (int i = 0; i < TOPICS_MANY; i++) {
        snprintf(names[i], sizeof names[i], "topic-%d", i);
        tern__wire__topic_config__init(&topics[i]);
        topics[i].name = text(names[i]);
        topics[i].read_queues = topics[i].write_queues = 4;
        topics[i].perm = 6;
    }
    caller_open(w, &broker);
    int64_t since = clock_mono_ns(clock_system());
    register_broker(&broker, topics, TOPICS_MANY);
    request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_LIST;
    request.topic_list = &body;
    assert_int_equal(ask(&broker, &request, &call), CODE(SUCCESS));
    assert_int_equal(call->response->topic_list->n_topics, TOPICS_MANY);
    rpc_call_unref(call);
    assert_true(in_time(since));
    caller_close(&broker);
}

/* Calls under way; the last answer sets the latch. */
struct flight {
    struct sched *sched;
    struct latch landed;
    _Atomic int left;
    _Atomic int failed;
};

static void landed(struct rpc_call *call, void *arg)
{
    struct flight *flight = arg;
    if (call->status != TERN_OK)
        atomic_fetch_add(&flight->failed, 1);
    rpc_call_unref(call);
    if (atomic_fetch_sub(&flight->left, 1) == 1)
        latch_set(flight->sched, &flight->landed);
}

/* A mix of what brokers, clients and tools ask, all of it touching the same names. */
static void launch(struct caller *caller, struct flight *flight, unsigned i)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RegisterBrokerRequest reg = TERN__WIRE__REGISTER_BROKER_REQUEST__INIT;
    Tern__Wire__RouteRequest asked = TERN__WIRE__ROUTE_REQUEST__INIT;
    Tern__Wire__TopicListRequest list = TERN__WIRE__TOPIC_LIST_REQUEST__INIT;
    Tern__Wire__KvRequest entry = TERN__WIRE__KV_REQUEST__INIT;
    Tern__Wire__TopicConfig topics[2] = {TERN__WIRE__TOPIC_CONFIG__INIT,
                                         TERN__WIRE__TOPIC_CONFIG__INIT};
    Tern__Wire__TopicConfig *pointers[2] = {&topics[0], &topics[1]};
    topics[0].name = asked.topic = text("T");
    topics[1].name = text("U");
    switch (i % 4) {
    case 0:
        reg.cluster_name = text("DefaultCluster");
        reg.broker_name = text(i % 8 ? "broker-a" : "broker-b");
        reg.address = text("127.0.0.1:10911");
        reg.store_uuid = text("0123456789abcdef");
        reg.topics_version = i;
        reg.has_topics = true;
        reg.topics = pointers;
        reg.n_topics = 1 + i % 3 % 2;
        request.body_case = TERN__WIRE__REQUEST__BODY_REGISTER_BROKER;
        request.register_broker = &reg;
        break;
    case 1:
        request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
        request.route = &asked;
        break;
    case 2:
        request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_LIST;
        request.topic_list = &list;
        break;
    default:
        entry.operation = (Tern__Wire__KvRequest__Operation)(i / 4 % 4);
        entry.namespace_ = entry.key = entry.value = (char *)(uintptr_t) "x";
        request.body_case = TERN__WIRE__REQUEST__BODY_KV;
        request.kv = &entry;
    }
    struct rpc_call *call;
    assert_ok(rpc_call_create(caller->peer, 0, &call));
    rpc_call_start(call, &request, 0, PATIENCE_MS, landed, flight);
}

static void requests_in_parallel_are_all_answered_while_connections_come_and_go(void **state)
{
    enum { CALLERS = 4, EACH = 48, ROUNDS = 8 };
    struct world *w = *state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct caller callers[CALLERS];
        struct flight flight = {.sched = w->env.sched, .left = CALLERS * EACH};
        int64_t deadline = clock_mono_ns(clock_system()) + ms_to_ns(2 * PATIENCE_MS);
        latch_init(&flight.landed);
        for (size_t c = 0; c < CALLERS; c++)
            caller_open(w, &callers[c]);
        for (unsigned i = 0; i < CALLERS * EACH; i++)
            launch(&callers[i % CALLERS], &flight, i / CALLERS + round);
        assert_true(latch_wait(w->env.sched, &flight.landed, deadline));
        assert_int_equal(atomic_load(&flight.failed), 0);
        for (size_t c = 0; c < CALLERS; c++)
            caller_close(&callers[c]);
    }
}

static void second_daemon_on_the_same_port_does_not_start(void **state)
{
    struct world *w = *state;
    char port[64], kv_path[128], err[128], line[512] = "";
    snprintf(port, sizeof port, "listenPort=%s", strchr(w->ns.address, ':') + 1);
    snprintf(kv_path, sizeof kv_path, "kvConfigPath=%s/kvConfig.json", w->dir);
    snprintf(err, sizeof err, "%s/other", w->dir);
    const char *args[] = {"-o", port, "-o", kv_path, NULL};
    struct daemon second = {0};
    spawn(&second, args, err);
    assert_null(fgets(line, sizeof line, second.out)); /* it is not ready */
    assert_int_equal(wait_end(&second), 1);
    FILE *file = fopen(err, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_contains(line, "mqnamesrv: ");
    fclose(file);
}

static void stop_by_either_signal_is_clean(void **state)
{
    struct world *w = *state;
    struct caller client;
    caller_open(w, &client);
    assert_int_equal(route(&client, "T"), CODE(TOPIC_NOT_EXIST));
    assert_int_equal(stop(w, SIGINT), 0); /* with a client attached */
    caller_close(&client);
    start(w, "listenPort=0");
    assert_int_equal(stop(w, SIGTERM), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(broker_whose_connection_closes_leaves_the_route_at_once),
        CASE(kv_survives_a_kill),
        CASE(client_attaches_after_a_thousand_hang_ups_in_the_handshake),
        CASE(thousands_of_topics_are_registered_and_listed),
        CASE(requests_in_parallel_are_all_answered_while_connections_come_and_go),
        CASE(second_daemon_on_the_same_port_does_not_start),
        CASE(stop_by_either_signal_is_clean),
    };
    return cmocka_run_group_tests_name("namesrv_component", tests, NULL, NULL);
}
