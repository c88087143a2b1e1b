/* pool.c -- the thread pool of pool.h. At its exit a program prints how many calls and threads it had. */
#include "pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, STEP = 7919 };        /* of threads; a prime above any number of bodies */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  work, done;
    pthread_t       thread[MOST];
    size_t          threads;            /* 0: not started */
    char            order[16];
    size_t          calls, round, busy; /* round: of work; busy: threads still at work in it */
    size_t          count, next;
    void          (*body)(void *, size_t);
    void           *context;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, "", 0, 0, 0,
          0, 0, NULL, NULL};

static void report(void)
{
    fprintf(stderr, "pool: %lu calls, %lu threads\n", (unsigned long)pool.calls, (unsigned long)pool.threads);
}

/* Set while a thread runs a body: nested calls of pool_for run on that thread alone. */
static __thread int inside;

/* The index of the body that is handed out as number k, in the order of POOL_ORDER. */
static size_t place(size_t k)
{
    if (!strcmp(pool.order, "reverse"))
        return pool.count - 1 - k;
    if (!strcmp(pool.order, "shuffled"))
        return (size_t)((unsigned long long)k * STEP % pool.count);
    return k;
}

static void run_body(size_t k)
{
    inside = 1;
    pool.body(pool.context, k);
    inside = 0;
}

static void take_part(size_t me)
{
    size_t k;
    if (!strcmp(pool.order, "static")) {
        const size_t end = pool.count * (me + 1) / pool.threads;
        for (k = pool.count * me / pool.threads; k < end; k++)
            run_body(k);
        return;
    }
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        k = pool.next++;
        pthread_mutex_unlock(&pool.lock);
        if (k >= pool.count)
            return;
        run_body(place(k));
    }
}

static void *worker(void *number)
{
    const size_t me = (size_t)number;
    size_t       seen = 0;
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        while (pool.round == seen)
            pthread_cond_wait(&pool.work, &pool.lock);
        seen = pool.round;
        pthread_mutex_unlock(&pool.lock);
        take_part(me);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.busy)
            pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

static void begin(void)
{
    const char *threads = getenv("POOL_THREADS"), *order = getenv("POOL_ORDER");
    size_t      i;
    pool.threads = threads ? (size_t)atoi(threads) : 1;
    if (pool.threads < 1 || pool.threads > MOST)
        abort();
    strncpy(pool.order, order ? order : "forward", sizeof pool.order - 1);
    for (i = 1; i < pool.threads; i++)
        if (pthread_create(&pool.thread[i], NULL, worker, (void *)i))
            abort();
    atexit(report);
}

void pool_for(size_t count, void (*body)(void *, size_t), void *context)
{
    size_t k;
    for (k = 0; inside && k < count; k++)
        body(context, k);
    if (inside)
        return;
    if (!pool.threads)
        begin();
    if (count < 2)
        abort();                        /* the headers must run a single body themselves */
    pool.calls++;
    pthread_mutex_lock(&pool.lock);
    pool.count = count;
    pool.body = body;
    pool.context = context;
    pool.next = 0;
    pool.busy = pool.threads;
    pool.round++;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    take_part(0);
    pthread_mutex_lock(&pool.lock);
    pool.busy--;
    while (pool.busy)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

size_t fast_part = 16384;

size_t pool_calls(void) { return pool.calls; }
