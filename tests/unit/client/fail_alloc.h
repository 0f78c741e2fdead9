/*
 * Making the Nth allocation fail. The program is linked with --wrap for malloc, calloc and realloc;
 * what the test's own thread allocates is counted from fail_alloc_at() on.
 */
#ifndef TESTS_UNIT_CLIENT_FAIL_ALLOC_H
#define TESTS_UNIT_CLIENT_FAIL_ALLOC_H

/* The next one but n fails, once; 0: the very next. */
void fail_alloc_at(unsigned n);
void fail_alloc_never(void);

#endif
