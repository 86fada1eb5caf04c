/*
 * The program behind a plugin's name and `cni` where `cni install` put it. It hands its call to `cni serve` and
 * waits. If no server takes the call, it executes the full binary, which does the same.
 *
 * No libc: it starts in the time that the kernel needs for a static program.
 *
 * Messages, on a socket of type SOCK_SEQPACKET:
 *   request  struct request, then argv and the environment as strings; without them, it is too long for a message
 *   OFFER    from the server, which does nothing and reads no stdin before COMMIT
 *   COMMIT   with descriptors 0, 1, 2, working directory, netns; from here on the call is the server's alone, and never
 *            run again. Descriptors in a request that nobody receives would keep the caller's pipes open.
 *   SIGNAL   with the number of a signal that asks this process to end; the server undoes an ADD
 *   OUTPUT   from the server: it is about to write to standard output
 *   END      from the server, with the exit status
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include "../../program/native/native.h"

#define PROTOCOL_VERSION 1
#define FULL_BINARY "cni-full"
#define OFFER_TIMEOUT_MS 1000
#define LOCK_TIMEOUT_MS 30000
#define LOCK_INTERVAL_MS 10
#define MAX_PATH 4096
#define FD_COUNT 5
#define SYSTEMD "/run/systemd/system"
/* sigset_t of the kernel, without that of libc. */
#define SIGSET_BYTES 8

enum message { OFFER = 'O', COMMIT = 'C', SIGNAL = 'S', OUTPUT = 'W', END = 'E' };

struct request {
  uint32_t version, umask, parent, argc;
  uint64_t started_ns; /* CLOCK_REALTIME */
};

#define await(fds, count, timeout) sys5(ppoll, fds, count, timeout, 0, 0)

static const char *socket_path = "/run/cni/cni.sock";
static char path_buffer[MAX_PATH + sizeof FULL_BINARY];
/* Signals that this process has blocked, and those that its caller had. */
static uint64_t blocked, inherited_mask;

static int contains(const char *text, const char *part) {
  for (; *text; text++)
    if (starts_with(text, part)) return 1;
  return 0;
}

/* Only this process, or the full binary in its place, has the descriptor of /dev/fd/63 or /proc/self/fd/63. */
static int is_own_path(const char *path) {
  return contains(path, "/fd/") && (starts_with(path, "/dev/") || contains(path, "self/"));
}

/* Whether the server takes such calls: those of plugins, and the commands of `cni run` for attachments. */
static int is_served(char **argv, char **envp) {
  static const char *const commands[] = {"add", "del", "check", "gc", "status", "restore"};
  if (is_own_path(variable(envp, "CNI_NETNS"))) return 0;
  if (!equal(base_name(argv[0]), "cni")) return *variable(envp, "CNI_COMMAND");
  if (!argv[1] || !equal(argv[1], "run") || !argv[2]) return 0;
  for (char **word = argv + 2; *word; word++)
    if (is_own_path(*word)) return 0;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (equal(argv[2], commands[i])) return 1;
  return 0;
}

/* Waits while a worker undoes what a killed caller began for the same attachment: see server/attachment_lock.ts. */
static void await_worker(char **argv, char **envp) {
  static const struct timespec interval = {0, LOCK_INTERVAL_MS * 1000000};
  const char *const words[] = {base_name(argv[0]), variable(envp, "CNI_CONTAINERID"), variable(envp, "CNI_IFNAME")};
  const char *command = variable(envp, "CNI_COMMAND");
  size_t n = length(socket_path);
  if ((!equal(command, "ADD") && !equal(command, "DEL")) || n >= MAX_PATH) return;
  memcpy(path_buffer, socket_path, n);
  memcpy(path_buffer + n, ".lock", sizeof ".lock");
  uint32_t hash = 2166136261;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (const char *at = words[i]; at == words[i] || at[-1]; at++) hash = (hash ^ (uint8_t)*at) * 16777619;
  long file = sys5(openat, AT_FDCWD, path_buffer, O_RDONLY | O_CLOEXEC, 0, 0);
  for (int ms = 0; file >= 0 && ms < LOCK_TIMEOUT_MS; ms += LOCK_INTERVAL_MS) {
    struct flock lock = {F_WRLCK, SEEK_SET, hash, 1, 0};
    if (sys(fcntl, file, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK) return;
    await(0, 0, &interval);
  }
}

/* Executes the full binary, which lies beside this file, with everything that this process was given. */
__attribute__((noreturn)) static void run_full(char **argv, char **envp) {
  if (blocked) sys5(rt_sigprocmask, SIG_SETMASK, &inherited_mask, 0, SIGSET_BYTES, 0);
  if (argv[0]) await_worker(argv, envp);
  long n = sys5(readlinkat, AT_FDCWD, "/proc/self/exe", path_buffer, MAX_PATH, 0);
  while (n > 0 && path_buffer[n - 1] != '/') n--;
  if (n > 0) memcpy(path_buffer + n, FULL_BINARY, sizeof FULL_BINARY);
  sys(execve, path_buffer, argv, envp);
  fail(argv, envp, 0, "5", "Cannot execute " FULL_BINARY " beside this program: install both by cni install");
}

/* Negative without a server, or if too many wait. A descriptor below 3 is a stream that the caller has closed. */
static long connect_to_server(void) {
  struct sockaddr_un address = {AF_UNIX, ""};
  if (length(socket_path) >= sizeof address.sun_path) return -1;
  memcpy(address.sun_path, socket_path, length(socket_path));
  long server = sys(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return sys(connect, server, &address, sizeof address) < 0 || server < 3 ? -1 : server;
}

/*
 * Whether a server is ready. The kernel names the process that listened last. systemd does so before it starts a server,
 * and one that has ended did. This connection has woken systemd.
 */
static int is_ready(long server) {
  struct ucred listener = {0, 0, 0};
  uint32_t size = sizeof listener;
  sys5(getsockopt, server, SOL_SOCKET, SO_PEERCRED, &listener, &size);
  if (listener.pid == 1) return sys5(faccessat, AT_FDCWD, SYSTEMD, 0, 0, 0) < 0;
  /* 0: a process of another namespace, which refuses this one. */
  return listener.pid == 0 || sys(kill, listener.pid, 0, 0) != -ESRCH;
}

static long send_request(long server, uint32_t argc, char **argv, char **envp) {
  struct timespec now = {0, 0};
  sys(clock_gettime, CLOCK_REALTIME, &now, 0);
  long mask = sys(umask, 0, 0, 0);
  sys(umask, mask, 0, 0);
  struct request request = {PROTOCOL_VERSION, (uint32_t)mask, (uint32_t)sys(getppid, 0, 0, 0), argc,
                            (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
  /* The kernel puts the strings of argv and of the environment one behind the other. */
  char **last = *envp ? envp : argv + argc - 1;
  while (*envp && last[1]) last++;
  struct iovec parts[2] = {{&request, sizeof request}, {argv[0], (size_t)(*last + length(*last) + 1 - argv[0])}};
  struct msghdr message = {0, 0, parts, 2, 0, 0, 0};
  long sent = sys(sendmsg, server, &message, MSG_NOSIGNAL);
  if (sent == -EMSGSIZE) sys5(sendto, server, &request, sizeof request, MSG_NOSIGNAL, 0);
  return sent;
}

/* Asks the server to take the call, and opens what a commit passes meanwhile. Returns 0 if it does not. */
static int is_offered(long server, uint32_t argc, char **argv, char **envp, int *fds) {
  const struct timespec timeout = {OFFER_TIMEOUT_MS / 1000, OFFER_TIMEOUT_MS % 1000 * 1000000};
  struct pollfd ready = {(int)server, POLLIN, 0};
  char message = 0;
  if (!is_ready(server) || send_request(server, argc, argv, envp) <= 0) return 0;
  fds[3] = (int)sys5(openat, AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0);
  fds[4] = (int)sys5(openat, AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0, 0);
  return await(&ready, 1, &timeout) > 0 && sys5(recvfrom, server, &message, 1, 0, 0) == 1 && message == OFFER;
}

/* From here on the call is the server's. Returns 0 if that fails, as with a standard stream that is closed. */
static int commit(long server, const int *fds) {
  static char message = COMMIT;
  struct iovec part = {&message, 1};
  struct {
    struct cmsghdr header;
    int fds[FD_COUNT];
  } control = {{CMSG_LEN(sizeof control.fds), SOL_SOCKET, SCM_RIGHTS}, {0}};
  for (size_t i = 0; i < FD_COUNT; i++) control.fds[i] = fds[i];
  struct msghdr header = {0, 0, &part, 1, &control, sizeof control, 0};
  return sys(sendmsg, server, &header, MSG_NOSIGNAL) == 1;
}

/* Blocks the signals that ask a process to end, without those that are ignored. */
static void block_signals(void) {
  static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    uint64_t action[4] = {0}; /* struct sigaction of the kernel: the handler comes first */
    sys5(rt_sigaction, signals[i], 0, action, SIGSET_BYTES, 0);
    if (action[0] != (uint64_t)SIG_IGN) blocked |= 1ul << (signals[i] - 1);
  }
  sys5(rt_sigprocmask, SIG_BLOCK, &blocked, &inherited_mask, SIGSET_BYTES, 0);
}

/* Ends as the signal asked. A second one ends this process at once, and the server goes on. */
__attribute__((noreturn)) static void end_by(long signal) {
  sys5(rt_sigprocmask, SIG_UNBLOCK, &blocked, 0, SIGSET_BYTES, 0);
  sys(kill, sys(getpid, 0, 0, 0), signal, 0);
  quit(128 + signal);
}

/* Ends as the server says, or with an error if it ended before it could. */
__attribute__((noreturn)) static void finish(long server, long signal, char **argv, char **envp) {
  int has_output = 0, is_commit_unread = 0;
  for (;;) {
    unsigned char message[2] = {0, 0};
    long size = sys5(recvfrom, server, message, sizeof message, 0, 0);
    if (size < 0) { /* ECONNRESET: the server has not read the last message; its own come next. */
      is_commit_unread |= size == -ECONNRESET;
      continue;
    }
    if (size > 0 && message[0] == OUTPUT) has_output = 1;
    if (size > 0 && message[0] != END) continue;
    if (signal && (size <= 0 || message[1])) end_by(signal);
    if (size > 0) quit(message[1]);
    /* It was the commit: the call has not begun. */
    if (is_commit_unread) run_full(argv, envp);
    fail(argv, envp, has_output, "11", "The server ended during this call, which may be half done: try again later");
  }
}

void start(long *stack) {
  uint32_t argc = (uint32_t)*stack;
  char **argv = (char **)(stack + 1), **envp = argv + argc + 1;
  if (*variable(envp, "CNI_SOCKET")) socket_path = variable(envp, "CNI_SOCKET");
  long server = argc > 0 && is_served(argv, envp) ? connect_to_server() : -1;
  int fds[FD_COUNT] = {0, 1, 2};
  if (server < 0 || !is_offered(server, argc, argv, envp, fds)) run_full(argv, envp);

  block_signals();
  if (!commit(server, fds)) run_full(argv, envp);
  /* Without POLLIN, this process sleeps until the server closes the connection, and reads all messages then. */
  struct pollfd ready[2] = {{(int)server, 0, 0},
                            {(int)sys5(signalfd4, -1, &blocked, SIGSET_BYTES, SFD_CLOEXEC, 0), POLLIN, 0}};
  long signal = 0;
  while (await(ready, 2, 0), !ready[0].revents) {
    if (!(ready[1].revents & POLLIN)) continue;
    struct signalfd_siginfo info;
    sys(read, ready[1].fd, &info, sizeof info);
    if (signal) end_by(signal);
    signal = info.ssi_signo;
    const char message[2] = {SIGNAL, (char)signal};
    sys5(sendto, server, message, sizeof message, MSG_NOSIGNAL, 0);
  }
  finish(server, signal, argv, envp);
}
