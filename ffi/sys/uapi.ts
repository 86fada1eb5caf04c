/** For error numbers, see `errno.ts`. @module */

const arm = process.arch === "arm64";

export const O_RDONLY = 0;
export const O_WRONLY = 0o1;
export const O_RDWR = 0o2;
export const O_CREAT = 0o100;
export const O_EXCL = 0o200;
export const O_TRUNC = 0o1000;
export const O_APPEND = 0o2000;
export const O_NONBLOCK = 0o4000;
export const O_DIRECTORY = arm ? 0o40000 : 0o200000;
export const O_NOFOLLOW = arm ? 0o100000 : 0o400000;
export const O_CLOEXEC = 0o2000000;
export const O_TMPFILE = arm ? 0o20040000 : 0o20200000;
export const F_SETFD = 2;
export const F_SETFL = 4;
export const AT_FDCWD = -100;
export const AT_SYMLINK_NOFOLLOW = 0x100;
export const AT_SYMLINK_FOLLOW = 0x400;

// A pipe that poll(2) calls writable takes so much without waiting.
export const PIPE_BUF = 4096;
export const POLLIN = 1;
export const POLLOUT = 4;

export const AF_UNIX = 1;
export const AF_UNSPEC = 0;
export const AF_INET = 2;
export const AF_BRIDGE = 7;
export const AF_INET6 = 10;
export const AF_NETLINK = 16;
export const AF_PACKET = 17;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_RAW = 3;
export const SOCK_SEQPACKET = 5;
export const SOCK_NONBLOCK = 0o4000;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;
export const SO_LINGER = 13;
export const MSG_DONTWAIT = 0x40;
export const MSG_NOSIGNAL = 0x4000;
export const IPPROTO_ICMP = 1;
export const IPPROTO_TCP = 6;
export const IPPROTO_IPV6 = 41;
export const IPPROTO_UDP = 17;
export const IPPROTO_ICMPV6 = 58;
export const IPPROTO_SCTP = 132;
export const ICMPV6_PKT_TOOBIG = 2;
export const ETH_P_ARP = 0x0806;
export const ETH_P_IP = 0x0800;
export const ETH_P_IPV6 = 0x86dd;

export const SYS_pidfd_open = 434;

export const SIGHUP = 1;
export const SIGINT = 2;
export const SIGKILL = 9;
export const SIGUSR2 = 12;
export const SIGTERM = 15;
export const SIGCHLD = 17;

export const CLONE_NEWNS = 0x20000;
export const CLONE_NEWNET = 0x40000000;
export const MS_REC = 16384;
export const MS_SLAVE = 524288;

// linux/if.h, with the final NUL
export const IFNAMSIZ = 16;
