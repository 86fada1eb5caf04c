/*
 * The first code of the program. It looks for what the JavaScript runtime dies without, and starts the loader of glibc
 * as the kernel does for PT_INTERP. That names one path for all hosts, and many have no glibc there: this loader, with
 * its libraries, lies beside the program. Without them, it is the host's.
 *
 * The build knows the macros that are not defined here: see scripts/src/build/start_code.ts.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "native.h"

#define MIN_STACK (256ul << 10)
#define MIN_ADDRESS_SPACE (5ul << 29)
#define MAX_PATH 4096
#define MAX_HEADERS 16
#define DESCRIPTORS "/proc/self/fd/"
#define DESCRIPTOR_DIGITS 10
#define HIDDEN 1

#define CANNOT_START "Cannot start: "
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

/* As the compiler of the runtime made them: the loader wants to see PT_INTERP, which the kernel must not see. */
static const Elf64_Phdr program_headers[] = {PROGRAM_HEADERS};

struct loader {
  Elf64_Ehdr header;
  Elf64_Phdr segments[MAX_HEADERS];
};

static int is_error(long result) { return result < 0 && result > -4096; }

/* A filter of system calls may refuse to tell. */
static int is_below(int resource, unsigned long minimum) {
  struct rlimit limit;
  return sys(getrlimit, resource, &limit, 0) == 0 && limit.rlim_cur < minimum;
}

/* Its code has instructions of 2008, which virtual machines may hide: SSSE3, SSE4.1, SSE4.2, POPCNT. */
static int lacks_instructions(void) {
#if defined(__x86_64__)
  const unsigned needed = 1u << 9 | 1u << 19 | 1u << 20 | 1u << 23;
  unsigned leaf = 1, features = 0, b, d;
  __asm__("cpuid" : "+a"(leaf), "=b"(b), "+c"(features), "=d"(d));
  return (features & needed) != needed;
#else
  return 0;
#endif
}

/* Why the runtime would die, or null. */
static const char *find_obstacle(void) {
  if (sys5(faccessat, AT_FDCWD, "/proc/self/exe", 0, 0, 0) == -ENOENT) return CANNOT_START "/proc is not mounted";
  if (is_below(RLIMIT_STACK, MIN_STACK))
    return CANNOT_START "the stack is limited too much: raise it to 256 KiB or more (ulimit -s, LimitSTACK)";
  if (is_below(RLIMIT_AS, MIN_ADDRESS_SPACE))
    return CANNOT_START "the address space is limited too much: raise it to 2.5 GiB or more (ulimit -v, LimitAS)";
  if (lacks_instructions())
    return CANNOT_START "the processor lacks SSE4.2 or POPCNT: in a virtual machine, give it that of the host (-cpu host)";
  return 0;
}

/* What is kept until the program starts. */
struct libraries {
  char path[sizeof DESCRIPTORS + DESCRIPTOR_DIGITS];
  int directory;
  char program[MAX_PATH + sizeof LIBRARY_DIRECTORY];
};

static void write_number(char *end, unsigned long number) {
  do *--end = (char)('0' + number % 10);
  while (number /= 10);
}

/*
 * Opens a directory and the loader in it. The lock tells an installation, which puts another directory in its place, that
 * it is used: see cmd/install/libraries.ts. If the installation holds the lock, it removes this directory: then the path
 * leads to the other one, which is opened.
 */
static long open_loader_in(const char *path, int *directory) {
  for (int attempts = 2;; attempts--) {
    long opened = sys5(openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    if (opened < 0) return opened;
    long locked = sys(flock, opened, LOCK_SH | LOCK_NB, 0);
    long file = sys5(openat, opened, LOADER, O_RDONLY | O_CLOEXEC, 0, 0);
    *directory = (int)opened;
    if (file >= 0 && (attempts == 1 || locked != -EWOULDBLOCK)) return file;
    sys(close, file, 0, 0);
    sys(close, opened, 0, 0);
    if (attempts == 1) return file;
  }
}

/*
 * Opens the loader beside the program, and has it find its libraries there: also where it trusts no $ORIGIN. The
 * directory is open meanwhile: libraries of another are not this loader's.
 */
static long open_own_loader(void) {
  struct libraries *own = (struct libraries *)call6(SYS_mmap, 0, sizeof *own, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (is_error((long)own)) return -ENOMEM;
  long n = sys5(readlinkat, AT_FDCWD, "/proc/self/exe", own->program, MAX_PATH, 0);
  while (n > 0 && own->program[n - 1] != '/') n--;
  if (n <= 0) return -ENOENT;
  memcpy(own->program + n, LIBRARY_DIRECTORY, sizeof LIBRARY_DIRECTORY);
  long file = open_loader_in(own->program, &own->directory);
  if (file < 0) return file;
  memset(own->path, '/', sizeof own->path - 1);
  memcpy(own->path, DESCRIPTORS, sizeof DESCRIPTORS - 1);
  write_number(own->path + sizeof own->path - 1, (unsigned long)own->directory);
  *(uint64_t *)LIBRARY_PATH_FIELD = (uint64_t)own->path - STRING_TABLE;
  return file;
}

/*
 * A caller's libraries may need another glibc, and its tunables may stop this one. The loader does not see them, but the
 * program does.
 */
static const char *const loader_variables[] = {"LD_", "GLIBC_TUNABLES="};

static void rename_variables(char **envp, int hide) {
  for (; *envp; envp++)
    for (size_t i = 0; i < sizeof loader_variables / sizeof *loader_variables; i++) {
      const char *name = loader_variables[i];
      char from = hide ? *name : HIDDEN, to = hide ? HIDDEN : *name;
      if (**envp == from && starts_with(*envp + 1, name + 1)) **envp = to;
    }
}

/* The loader enters the program here, with a register that is for the program. */
#if defined(__x86_64__)
__asm__("enter: push %rdx\nlea 8(%rsp), %rdi\nsub $8, %rsp\ncall finish\nadd $8, %rsp\npop %rdx\n"
        "movabs $" TEXT(PROGRAM_ENTRY) ", %rax\njmp *%rax\n");
#elif defined(__aarch64__)
__asm__("enter: str x0, [sp, #-16]!\nadd x0, sp, 16\nbl finish\nldr x0, [sp], #16\nmov x30, 0\n"
        "ldr x16, =" TEXT(PROGRAM_ENTRY) "\nbr x16\n.ltorg\n");
#endif
extern const char enter[];

void finish(long *stack) {
  rename_variables((char **)(stack + 2 + *stack), 0);
  uint64_t path = *(uint64_t *)LIBRARY_PATH_FIELD;
  if (!path) return;
  struct libraries *own = (struct libraries *)(STRING_TABLE + path);
  sys(close, own->directory, 0, 0);
}

static int protection(uint32_t flags) {
  return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) | (flags & PF_X ? PROT_EXEC : 0);
}

/* Negative if the segment cannot be mapped. */
static long map_segment(long file, unsigned long base, unsigned long page, const Elf64_Phdr *segment) {
  unsigned long start = base + segment->p_vaddr, within = start % page;
  unsigned long file_end = start + segment->p_filesz, end = start + segment->p_memsz;
  unsigned long mapped_end = (file_end + page - 1) & -page;
  int prot = protection(segment->p_flags);
  long result = call6(SYS_mmap, (long)(start - within), (long)(segment->p_filesz + within), prot, MAP_PRIVATE | MAP_FIXED, file,
                      (long)(segment->p_offset - within));
  if (is_error(result) || end == file_end) return result;
  memset((void *)file_end, 0, mapped_end - file_end);
  if (end <= mapped_end) return result;
  return call6(SYS_mmap, (long)mapped_end, (long)(end - mapped_end), prot, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
}

/* The address of the loader's first byte, or negative. */
static long map_loader(long file, unsigned long page, struct loader *loader) {
  long size = call6(SYS_pread64, file, (long)loader, sizeof *loader, 0, 0, 0);
  Elf64_Phdr *segments = loader->segments;
  if (size < (long)sizeof *loader || loader->header.e_phoff != sizeof loader->header) return -ENOEXEC;
  if (loader->header.e_phnum > MAX_HEADERS) return -ENOEXEC;
  unsigned long end = 0;
  for (int i = 0; i < loader->header.e_phnum; i++)
    if (segments[i].p_type == PT_LOAD) end = segments[i].p_vaddr + segments[i].p_memsz;
  /* The distances between segments are fixed. */
  long base = call6(SYS_mmap, 0, (long)end, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < loader->header.e_phnum && !is_error(base); i++) {
    long result = segments[i].p_type == PT_LOAD ? map_segment(file, (unsigned long)base, page, &segments[i]) : 0;
    if (is_error(result)) return result;
  }
  return base;
}

static Elf64_auxv_t *find_value(Elf64_auxv_t *values, uint64_t type) {
  while (values->a_type != type && values->a_type != AT_NULL) values++;
  return values;
}

/* In registers that are not cleared on the way. */
__attribute__((noreturn)) static void jump(unsigned long entry, long *stack) {
#if defined(__x86_64__)
  __asm__ volatile("mov %1, %%rsp\nxor %%edx, %%edx\nxor %%ebp, %%ebp\njmp *%0" ::"a"(entry), "c"(stack) : "memory");
#elif defined(__aarch64__)
  register unsigned long x16 __asm__("x16") = entry;
  register long *x17 __asm__("x17") = stack;
  __asm__ volatile("mov sp, %1\nmov x0, 0\nmov x29, 0\nmov x30, 0\nbr %0" ::"r"(x16), "r"(x17) : "memory");
#endif
  __builtin_unreachable();
}

void start(long *stack) {
  char **argv = (char **)(stack + 1), **envp = argv + *stack + 1, **end = envp;
  while (*end) end++;
  Elf64_auxv_t *values = (Elf64_auxv_t *)(end + 1);
  const char *obstacle = find_obstacle();
  if (obstacle) fail(argv, envp, 0, "999", obstacle);

  struct loader loader;
  long own = open_own_loader(), file = own;
  if (own < 0) file = sys5(openat, AT_FDCWD, HOST_LOADER, O_RDONLY | O_CLOEXEC, 0, 0);
  if (file < 0 && own == -EACCES)
    fail(argv, envp, 0, "5", CANNOT_START "this user may not read the directory " LIBRARY_DIRECTORY
         " beside the program: allow it (chmod -R a+rX)");
  if (file < 0 && (own == -EMFILE || own == -ENFILE))
    fail(argv, envp, 0, "11", CANNOT_START "too many files are open (EMFILE): raise the limit (ulimit -n)");
  if (file < 0)
    fail(argv, envp, 0, "5", CANNOT_START "this host has no glibc, and the directory " LIBRARY_DIRECTORY
         " is not beside the program: install all files of the release");
  long base = map_loader(file, find_value(values, AT_PAGESZ)->a_un.a_val, &loader);
  if (is_error(base)) fail(argv, envp, 0, "5", CANNOT_START "the loader of glibc cannot be mapped");
  sys(close, file, 0, 0);
  find_value(values, AT_PHDR)->a_un.a_val = (uint64_t)program_headers;
  find_value(values, AT_PHNUM)->a_un.a_val = sizeof program_headers / sizeof *program_headers;
  find_value(values, AT_BASE)->a_un.a_val = (uint64_t)base;
  find_value(values, AT_ENTRY)->a_un.a_val = (uint64_t)enter;
  /* Of a caller with fewer rights, it obeys none, and takes them from the program as well. */
  if (!find_value(values, AT_SECURE)->a_un.a_val) rename_variables(envp, 1);
  jump((unsigned long)base + loader.header.e_entry, stack);
}
