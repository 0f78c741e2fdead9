/* Findings, counted and printed. Threads: one. */
#include "tools/mqstore/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

struct kind_row {
    bool fault;
    const char *name;
    const char *text;
};

static const struct kind_row rows[FINDING_KINDS] = {
#define FINDING_ROW_(kind, fault, name, text) {fault, name, text},
    FINDING_TABLE(FINDING_ROW_)
#undef FINDING_ROW_
};

void findings_count(struct findings *findings, enum finding_kind kind, uint64_t count)
{
    findings->counts[kind] += count;
}

void findings_add(struct findings *findings, enum finding_kind kind, const char *file,
                  int64_t offset, const char *fmt, ...)
{
    uint64_t n = findings->counts[kind]++;
    if (n >= FINDING_EXAMPLES)
        return;
    struct finding *finding = &findings->examples[kind][n];
    va_list args;
    snprintf(finding->file, sizeof finding->file, "%s", file ? file : "");
    finding->offset = offset;
    va_start(args, fmt);
    vsnprintf(finding->text, sizeof finding->text, fmt, args);
    va_end(args);
}

uint64_t findings_faults(const struct findings *findings)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < FINDING_KINDS; kind++)
        if (rows[kind].fault)
            sum += findings->counts[kind];
    return sum;
}

/* How many examples of the kind there are: an example always comes with a count. */
static size_t example_count(const struct findings *findings, int kind)
{
    size_t n = 0;
    while (n < FINDING_EXAMPLES && findings->examples[kind][n].text[0])
        n++;
    return n;
}

static void print_kind(const struct findings *findings, int kind, FILE *out)
{
    size_t shown = example_count(findings, kind);
    fprintf(out, "%s: %" PRIu64 " × %s\n", rows[kind].fault ? "FAULT" : "note",
            findings->counts[kind], rows[kind].text);
    for (size_t i = 0; i < shown; i++) {
        const struct finding *finding = &findings->examples[kind][i];
        fprintf(out, "       %s", finding->file);
        if (finding->offset >= 0)
            fprintf(out, " at %" PRId64, finding->offset);
        fprintf(out, "%s%s\n", finding->file[0] ? ": " : "", finding->text);
    }
}

void findings_print(const struct findings *findings, FILE *out)
{
    for (int pass = 0; pass < 2; pass++)
        for (int kind = 0; kind < FINDING_KINDS; kind++)
            if (findings->counts[kind] && rows[kind].fault == (pass == 0))
                print_kind(findings, kind, out);
}

static json_t *kind_to_json(const struct findings *findings, int kind)
{
    json_t *first = json_array();
    size_t shown = example_count(findings, kind);
    for (size_t i = 0; i < shown; i++) {
        const struct finding *finding = &findings->examples[kind][i];
        json_t *one = json_object();
        if (finding->file[0])
            json_object_set_new(one, "file", json_string(finding->file));
        if (finding->offset >= 0)
            json_object_set_new(one, "offset", json_integer(finding->offset));
        json_object_set_new(one, "text", json_string(finding->text));
        json_array_append_new(first, one);
    }
    return json_pack("{s:I,s:o}", "count", (json_int_t)findings->counts[kind], "first", first);
}

void findings_to_json(const struct findings *findings, json_t *json)
{
    json_t *faults = json_object();
    json_t *notes = json_object();
    for (int kind = 0; kind < FINDING_KINDS; kind++)
        if (findings->counts[kind])
            json_object_set_new(rows[kind].fault ? faults : notes, rows[kind].name,
                                kind_to_json(findings, kind));
    json_object_set_new(json, "faults", faults);
    json_object_set_new(json, "notes", notes);
}
