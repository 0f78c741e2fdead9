/*
 * The readers of a filtered check beside the one of everything: one by tags, one by a condition.
 * Each is a view: a checker of its own that does not send, and is told what was tried and
 * acknowledged.
 *
 *   senders ─► verify (everything) ─► view by tags ─► view by condition
 *                 │ reader "*"          │ reader          │ reader
 *                 └──────── at the end: what they found, added up ────────┘
 *
 * What a view misses though the reader of everything has it was withheld; what both miss is lost.
 * Threads: as noted in verify.h. Failure modes: said on stderr.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/mqbench/verify.h"

enum { VIEWS = 2 };

struct verify_views {
    struct verify *verify;
    struct verify views[VIEWS];
    size_t made; /* of them: initialized */
    struct verify_reader *readers[VIEWS];
};

bool verify_all_note_try(struct verify *verify, struct verify_stream *stream, uint64_t first,
                         uint32_t count)
{
    bool good = verify_note_try(stream, first, count);
    for (struct verify *view = verify->next; view; view = view->next) {
        pthread_mutex_lock(&view->lock);
        good = verify_note_try(&view->streams[stream->id], first, count) && good;
        pthread_mutex_unlock(&view->lock);
    }
    return good;
}

void verify_all_note_acked(struct verify *verify, struct verify_stream *stream, uint64_t count,
                           int64_t now_ns)
{
    verify_note_acked(verify, stream, count, now_ns);
    for (struct verify *view = verify->next; view; view = view->next) {
        pthread_mutex_lock(&view->lock);
        verify_note_acked(view, &view->streams[stream->id], count, now_ns);
        pthread_mutex_unlock(&view->lock);
    }
}

/* ---- life ---- */

static bool copy_stream(struct verify *view, const struct verify_stream *from)
{
    struct verify_stream *stream = &view->streams[from->id];
    stream->queue = from->queue;
    stream->id = from->id;
    if (from->retry_count > 0) {
        stream->retries = calloc(from->retry_count, sizeof *stream->retries);
        if (!stream->retries)
            return false;
        memcpy(stream->retries, from->retries, from->retry_count * sizeof *stream->retries);
        stream->retry_count = stream->retry_cap = from->retry_count;
    }
    verify_note_acked(view, stream, from->acked, bench_now_ns());
    return true;
}

/* A view of what `verify` sends or has sent. An exit status. */
static int make_view(struct verify *view, const struct verify *verify, enum verify_view kind)
{
    bool good;
    verify_init(view, verify->options);
    view->run_id = verify->run_id;
    view->view = kind;
    view->streams = calloc(verify->stream_count, sizeof *view->streams);
    good = view->streams != NULL;
    view->stream_count = good ? verify->stream_count : 0;
    for (size_t i = 0; good && i < verify->stream_count; i++)
        good = copy_stream(view, &verify->streams[i]);
    return good ? verify_make_queues(view) : bench_fail("verify", TERN_NO_MEMORY, NULL);
}

struct verify_views *verify_views_start(struct verify *verify, int *status)
{
    static const enum verify_view kinds[VIEWS] = {VIEW_TAGS, VIEW_CONDITION};
    struct verify_views *views = calloc(1, sizeof *views);
    struct verify **link = &verify->next;
    if (!views) {
        *status = bench_fail("verify", TERN_NO_MEMORY, NULL);
        return NULL;
    }
    views->verify = verify;
    *status = EXIT_OK;
    for (size_t i = 0; i < VIEWS && *status == EXIT_OK; i++) {
        *status = make_view(&views->views[i], verify, kinds[i]);
        views->made++;
        if (*status == EXIT_OK)
            views->readers[i] = verify_reader_start(&views->views[i], status);
        *link = &views->views[i];
        link = &views->views[i].next;
    }
    if (*status == EXIT_OK)
        return views;
    verify_views_stop(views);
    return NULL;
}

/* What the view found goes to the checker's findings. No reader runs any more. */
static void add_findings(struct verify *verify, const struct verify *view)
{
    for (size_t i = 0; i < view->stream_count && view->waiting > 0; i++)
        for (uint64_t n = 0; n < view->streams[i].acked; n++)
            verify->withheld += verify_wanted(view, (uint32_t)i, n) &&
                                !verify_is_seen(&view->streams[i], n) &&
                                verify_is_seen(&verify->streams[i], n);
    *(view->view == VIEW_TAGS ? &verify->delivered_by_tag : &verify->delivered_by_condition) +=
        view->seen;
    verify->unwanted += view->unwanted;
    verify->reordered += view->reordered;
    verify->altered += view->altered;
    verify->duplicated_unexplained += view->duplicated_unexplained;
    verify->offset_regressions += view->offset_regressions;
}

void verify_views_stop(struct verify_views *views)
{
    if (!views)
        return;
    views->verify->next = NULL;
    for (size_t i = 0; i < VIEWS; i++)
        verify_reader_stop(views->readers[i]);
    for (size_t i = 0; i < views->made; i++) {
        add_findings(views->verify, &views->views[i]);
        verify_fini(&views->views[i]);
    }
    free(views);
}
