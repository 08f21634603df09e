// Stands before the C library's pthread_create, and refuses threads when told to.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static int allowed = -1;  // so many more; negative: all

void allow_threads(int count) { allowed = count; }

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  if (allowed == 0) return EAGAIN;
  if (allowed > 0) --allowed;
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = dlsym(RTLD_NEXT, "pthread_create");
  return create(thread, attributes, function, argument);
}
