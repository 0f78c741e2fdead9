/*
 * The bare transport: a NNG request and reply of the same sizes between two processes on loopback,
 * nothing decoded, nothing stored. It is the yardstick for the other modes, so this one file talks
 * to NNG itself.
 */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/mqbench/bench.h"

enum { REPLY_BYTES = 64, SERVER_CONTEXTS = 256, FRAME_ENVELOPE_BYTES = 96 };

#define NNG_DO(call)                                                                               \
    do {                                                                                           \
        int rv_ = (call);                                                                          \
        if (rv_)                                                                                   \
            nng_died(#call, rv_);                                                                  \
    } while (0)

static _Noreturn void nng_died(const char *call, int rv)
{
    fprintf(stderr, "mqbench: %s: %s\n", call, nng_strerror(rv));
    _exit(EXIT_NO);
}

/* ---- the serving process ---- */

struct context {
    nng_ctx ctx;
    nng_aio *aio;
    bool receiving;
};

static void on_server(void *arg)
{
    struct context *c = arg;
    nng_msg *reply;
    if (nng_aio_result(c->aio)) {
        if (!c->receiving)
            nng_msg_free(nng_aio_get_msg(c->aio));
        return;
    }
    if (c->receiving) {
        nng_msg_free(nng_aio_get_msg(c->aio));
        NNG_DO(nng_msg_alloc(&reply, REPLY_BYTES));
        nng_aio_set_msg(c->aio, reply);
        c->receiving = false;
        nng_ctx_send(c->ctx, c->aio);
    } else {
        c->receiving = true;
        nng_ctx_recv(c->ctx, c->aio);
    }
}

static _Noreturn void serve(int port_pipe)
{
    static struct context contexts[SERVER_CONTEXTS];
    nng_socket s;
    nng_listener listener;
    int port;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    NNG_DO(nng_rep0_open(&s));
    NNG_DO(nng_socket_set_size(s, NNG_OPT_RECVMAXSZ, (size_t)256 << 20));
    NNG_DO(nng_listen(s, "tcp://127.0.0.1:0", &listener, 0));
    NNG_DO(nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port));
    for (int i = 0; i < SERVER_CONTEXTS; i++) {
        contexts[i].receiving = true;
        NNG_DO(nng_ctx_open(&contexts[i].ctx, s));
        NNG_DO(nng_aio_alloc(&contexts[i].aio, on_server, &contexts[i]));
        nng_ctx_recv(contexts[i].ctx, contexts[i].aio);
    }
    if (write(port_pipe, &port, sizeof port) != sizeof port)
        _exit(EXIT_NO);
    for (;;)
        pause();
}

/* ---- the loading process ---- */

struct load {
    const struct bench_options *options;
    size_t frame_bytes;
    uint64_t messages_per_frame;
    struct histogram *latency_ns;
    int64_t start_ns;
    _Atomic uint64_t messages;
    _Atomic int64_t flying;
};

struct flight {
    struct load *load;
    nng_ctx ctx;
    nng_aio *aio;
    bool sending;
    int64_t sent_ns;
};

static void launch(struct flight *f)
{
    nng_msg *m;
    NNG_DO(nng_msg_alloc(&m, f->load->frame_bytes));
    nng_aio_set_msg(f->aio, m);
    f->sending = true;
    f->sent_ns = bench_now_ns();
    nng_ctx_send(f->ctx, f->aio);
}

static void on_client(void *arg)
{
    struct flight *f = arg;
    struct load *load = f->load;
    int rv = nng_aio_result(f->aio);
    if (rv)
        nng_died("echo", rv);
    if (f->sending) {
        f->sending = false;
        nng_ctx_recv(f->ctx, f->aio);
        return;
    }
    nng_msg_free(nng_aio_get_msg(f->aio));
    histogram_add(load->latency_ns, bench_now_ns() - f->sent_ns);
    uint64_t done =
        atomic_fetch_add(&load->messages, load->messages_per_frame) + load->messages_per_frame;
    if (bench_goes_on(load->options, load->start_ns, done))
        launch(f);
    else
        atomic_fetch_sub(&load->flying, 1);
}

/* Waits in the calling thread, as a synchronous send does. */
static void run_sync(nng_socket s, struct load *load)
{
    while (bench_goes_on(load->options, load->start_ns, load->messages)) {
        nng_msg *m;
        int64_t begin_ns = bench_now_ns();
        NNG_DO(nng_msg_alloc(&m, load->frame_bytes));
        NNG_DO(nng_sendmsg(s, m, 0));
        NNG_DO(nng_recvmsg(s, &m, 0));
        nng_msg_free(m);
        histogram_add(load->latency_ns, bench_now_ns() - begin_ns);
        load->messages += load->messages_per_frame;
    }
}

static void run_async(nng_socket s, struct load *load)
{
    int64_t count = load->options->in_flight;
    struct flight *flights = calloc((size_t)count, sizeof *flights);
    if (!flights)
        nng_died("calloc", NNG_ENOMEM);
    load->flying = count;
    for (int64_t i = 0; i < count; i++) {
        flights[i].load = load;
        NNG_DO(nng_ctx_open(&flights[i].ctx, s));
        NNG_DO(nng_aio_alloc(&flights[i].aio, on_client, &flights[i]));
        launch(&flights[i]);
    }
    while (atomic_load(&load->flying) > 0)
        nng_msleep(2);
    for (int64_t i = 0; i < count; i++) {
        nng_aio_free(flights[i].aio);
        nng_ctx_close(flights[i].ctx);
    }
    free(flights);
}

int bench_echo(const struct bench_options *options)
{
    int pipe_fds[2], port = 0;
    char url[64];
    nng_socket s;
    if (pipe(pipe_fds) != 0)
        return bench_fail("pipe", TERN_IO, NULL);
    pid_t server = fork(); /* before the first NNG call of either process */
    if (server == 0)
        serve(pipe_fds[1]);
    close(pipe_fds[1]);
    if (server < 0 || read(pipe_fds[0], &port, sizeof port) != sizeof port)
        return bench_fail("the echo server did not start", TERN_UNREACHABLE, NULL);
    close(pipe_fds[0]);
    uint64_t per_frame = options->mode == MODE_BATCH ? (uint64_t)options->batch : 1;
    struct load load = {.options = options,
                        .frame_bytes =
                            ((size_t)options->size_bytes + FRAME_ENVELOPE_BYTES) * per_frame,
                        .messages_per_frame = per_frame,
                        .latency_ns = calloc(1, sizeof *load.latency_ns)};
    if (!load.latency_ns)
        return bench_fail("echo", TERN_NO_MEMORY, NULL);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    NNG_DO(nng_req0_open(&s));
    NNG_DO(nng_socket_set_ms(s, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE));
    NNG_DO(nng_dial(s, url, NULL, 0));
    load.start_ns = bench_now_ns();
    if (options->mode == MODE_SYNC)
        run_sync(s, &load);
    else
        run_async(s, &load);
    struct bench_figures figures = {
        .messages = load.messages,
        .bytes = load.messages * (uint64_t)options->size_bytes,
        .seconds = (double)(bench_now_ns() - load.start_ns) / 1e9,
        .latency_ns = load.latency_ns,
    };
    nng_close(s);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    int status = bench_report(options, &figures);
    free(load.latency_ns);
    return status;
}
