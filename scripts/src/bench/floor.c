/*
 * Makes the kernel requests of one recorded call and nothing else: what any program costs that does the same job in the same way.
 *
 * REQUESTS is a header that floor.ts writes from a trace of our own call: every request with its bytes, in order. Two things are not
 * taken from the record: the path of the container's namespace, which is the first argument, and the generation of the ruleset in a
 * batch, which is the one that the kernel told last. Descriptors get the numbers of the record, since the lower ones are taken first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind { VALUE, BYTES, ROOM, CONTAINER };

struct argument {
  enum kind kind;
  long value;
  const void *bytes;
};

struct request {
  short number;
  short opens; /* the descriptor it gave when it was recorded, or -1 */
  int error; /* the error it, or the kernel's answer that it received, had */
  struct argument arguments[6];
};

/* As large as all parts of a vector of messages. */
static _Alignas(8) unsigned char room[1 << 22];

#include REQUESTS

static unsigned char generation[4];

/* linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h */
enum { MESSAGE_ERROR = 2, BATCH_BEGIN = 16, NEW_GENERATION = 10 << 8 | 15, HEADER = 16, FAMILY = 4, ATTRIBUTE = 4 };

static unsigned short type_of(const unsigned char *message) {
  unsigned short type;
  memcpy(&type, message + 4, sizeof type);
  return type;
}

/* A batch that names a generation is 28 bytes long before its first change. */
static void renew_generation(unsigned char *message) {
  if (type_of(message) == BATCH_BEGIN && message[0] == HEADER + FAMILY + ATTRIBUTE + 4) {
    memcpy(message + HEADER + FAMILY + ATTRIBUTE, generation, sizeof generation);
  }
}

/* The error that the kernel answered with; an acknowledgement is error 0. */
static int received(const unsigned char *message) {
  int error = 0;
  if (type_of(message) == NEW_GENERATION) {
    memcpy(generation, message + HEADER + FAMILY + ATTRIBUTE, sizeof generation);
  }
  if (type_of(message) == MESSAGE_ERROR) memcpy(&error, message + HEADER, sizeof error);
  return -error;
}

static long value_of(const struct argument *argument, const char *container) {
  switch (argument->kind) {
    case BYTES: return (long)argument->bytes;
    case ROOM: return (long)room;
    case CONTAINER: return (long)container;
    default: return argument->value;
  }
}

int main(int count, char **arguments) {
  const char *container = count > 1 ? arguments[1] : "";
  for (int taken = 3; taken < FIRST_DESCRIPTOR; taken++) dup(0);
  for (unsigned at = 0; at < sizeof requests / sizeof *requests; at++) {
    const struct request *request = &requests[at];
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = value_of(&request->arguments[i], container);
    if (request->number == SYS_sendto) renew_generation((unsigned char *)a[1]);
    long result = syscall(request->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int error = result < 0 ? errno : 0;
    if (request->number == SYS_recvfrom && result >= HEADER + 4) error = received(room);
    for (int i = 0; request->number == SYS_recvmmsg && i < result; i++) {
      received(((struct mmsghdr *)a[1])[i].msg_hdr.msg_iov->iov_base);
    }
    if (error != request->error || (request->opens >= 0 && request->opens != result)) {
      fprintf(stderr, "request %u (system call %d) gave %ld, %s; recorded: %s\n", at, request->number, result, strerror(error),
              strerror(request->error));
      return 1;
    }
  }
  return 0;
}
