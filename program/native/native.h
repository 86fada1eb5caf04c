/* What programs without a libc share: system calls, strings, and the error that ends a call. */
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static long call6(long n, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\nand $-16, %rsp\ncall start\n");
#elif defined(__aarch64__)
static long call6(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                     x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start: mov x0, sp\nbl start\n");
#endif
#define sys(n, a, b, c) call6(SYS_##n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys5(n, a, b, c, d, e) call6(SYS_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* The compiler calls these. Volatile, or they would become calls of themselves. */
void *memcpy(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int byte, size_t size) {
  for (volatile char *at = to; size--; at++) *at = (char)byte;
  return to;
}

static size_t length(const char *text) {
  size_t n = 0;
  while (text[n]) n++;
  return n;
}

static int starts_with(const char *text, const char *start) {
  while (*start && *text == *start) text++, start++;
  return !*start;
}

static int equal(const char *a, const char *b) { return starts_with(a, b) && length(a) == length(b); }

static const char *base_name(const char *path) {
  const char *name = path;
  for (; *path; path++)
    if (*path == '/') name = path + 1;
  return name;
}

static const char *variable(char **envp, const char *name) {
  size_t n = length(name);
  for (; *envp; envp++)
    if (starts_with(*envp, name) && (*envp)[n] == '=') return *envp + n + 1;
  return "";
}

static void say(int fd, const char *text) { sys(write, fd, text, length(text)); }

__attribute__((noreturn)) static void quit(long status) {
  sys(exit_group, status, 0, 0);
  __builtin_unreachable();
}

/* Prints an error: an engine reads the specification's object on standard output, a person standard error. */
__attribute__((noreturn)) static void fail(char **argv, char **envp, int has_output, const char *code, const char *message) {
  int wants_json = *variable(envp, "CNI_COMMAND") && !equal(base_name(argv[0]), "cni");
  for (char **word = argv; *word; word++) wants_json |= equal(*word, "--json");
  if (wants_json && !has_output) {
    const char *const parts[] = {"{\"cniVersion\":\"1.1.0\",\"code\":", code, ",\"msg\":\"", message, "\"}\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) say(1, parts[i]);
  }
  say(2, "cni: "), say(2, message), say(2, "\n");
  quit(1);
}
