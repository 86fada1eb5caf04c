/** @see asm-generic/errno-base.h and asm-generic/errno.h (the same on x86-64 and arm64) @module */

export const EPERM = 1;
export const ENOENT = 2;
export const EINTR = 4;
export const EIO = 5;
export const ENXIO = 6;
export const EBADF = 9;
export const EAGAIN = 11;
export const EACCES = 13;
export const EEXIST = 17;
export const ENODEV = 19;
export const ENOSPC = 28;
export const EISDIR = 21;
export const EINVAL = 22;
export const EFBIG = 27;
export const ENOSYS = 38;
export const ENOTEMPTY = 39;
export const ERESTART = 85;
export const EMSGSIZE = 90;
export const ENETUNREACH = 101;
export const ECONNRESET = 104;
export const ENOBUFS = 105;
export const ETIMEDOUT = 110;
export const EHOSTUNREACH = 113;
export const ESTALE = 116;

/** The sentences are the C library's. Text costs nothing to load. */
const TABLE = `
1 EPERM Operation not permitted
2 ENOENT No such file or directory
3 ESRCH No such process
4 EINTR Interrupted system call
5 EIO Input/output error
6 ENXIO No such device or address
7 E2BIG Argument list too long
8 ENOEXEC Exec format error
9 EBADF Bad file descriptor
10 ECHILD No child processes
11 EAGAIN Resource temporarily unavailable
12 ENOMEM Cannot allocate memory
13 EACCES Permission denied
14 EFAULT Bad address
16 EBUSY Device or resource busy
17 EEXIST File exists
18 EXDEV Invalid cross-device link
19 ENODEV No such device
20 ENOTDIR Not a directory
21 EISDIR Is a directory
22 EINVAL Invalid argument
23 ENFILE Too many open files in system
24 EMFILE Too many open files
26 ETXTBSY Text file busy
27 EFBIG File too large
28 ENOSPC No space left on device
29 ESPIPE Illegal seek
30 EROFS Read-only file system
31 EMLINK Too many links
32 EPIPE Broken pipe
34 ERANGE Numerical result out of range
35 EDEADLK Resource deadlock avoided
36 ENAMETOOLONG File name too long
38 ENOSYS Function not implemented
39 ENOTEMPTY Directory not empty
40 ELOOP Too many levels of symbolic links
54 EXFULL Exchange full
61 ENODATA No data available
71 EPROTO Protocol error
74 EBADMSG Bad message
75 EOVERFLOW Value too large for defined data type
85 ERESTART Interrupted system call should be restarted
88 ENOTSOCK Socket operation on non-socket
90 EMSGSIZE Message too long
92 ENOPROTOOPT Protocol not available
93 EPROTONOSUPPORT Protocol not supported
94 ESOCKTNOSUPPORT Socket type not supported
95 EOPNOTSUPP Operation not supported
97 EAFNOSUPPORT Address family not supported by protocol
98 EADDRINUSE Address already in use
99 EADDRNOTAVAIL Cannot assign requested address
100 ENETDOWN Network is down
101 ENETUNREACH Network is unreachable
103 ECONNABORTED Software caused connection abort
104 ECONNRESET Connection reset by peer
105 ENOBUFS No buffer space available
107 ENOTCONN Transport endpoint is not connected
110 ETIMEDOUT Connection timed out
111 ECONNREFUSED Connection refused
112 EHOSTDOWN Host is down
113 EHOSTUNREACH No route to host
115 EINPROGRESS Operation now in progress
116 ESTALE Stale file handle
122 EDQUOT Disk quota exceeded
`;

export function findErrno(code: string): number | undefined {
  const line = TABLE.split("\n").find((entry) => entry.split(" ")[1] === code);
  return line === undefined ? undefined : Number(line.split(" ")[0]);
}

export function describeErrno(errno: number): { readonly code: string; readonly sentence: string } {
  const start = TABLE.indexOf(`\n${errno} `);
  if (start < 0) return { code: `errno ${errno}`, sentence: "Unknown error" };
  const line = TABLE.slice(start + 1, TABLE.indexOf("\n", start + 1));
  const [, code = "", ...words] = line.split(" ");
  return { code, sentence: words.join(" ") };
}
