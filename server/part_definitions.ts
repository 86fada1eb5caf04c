import { createFile } from "../ffi/sys/atomic_file.ts";
import type { SystemCallNeeds } from "../ffi/sys/confinement.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, SOCK_SEQPACKET, SOCK_STREAM } from "../ffi/sys/uapi.ts";
import { canonicalPath } from "../program/installed_file.ts";
import type { PartSettings } from "./part_settings.ts";

// linux/capability.h
const CAP_NET_BIND_SERVICE = 10;
const CAP_NET_ADMIN = 12;
const CAP_NET_RAW = 13;
const CAP_SYS_PTRACE = 19;
const CAP_SYS_ADMIN = 21;

export interface PartRights extends SystemCallNeeds {
  /** Their numbers are those of linux/capability.h. */
  readonly capabilities: readonly number[];
  /** Absent for one that opens namespaces of other processes, which Landlock refuses altogether. */
  readonly files?: {
    /** Its program's files are readable anyway. */
    readable(settings: PartSettings): readonly string[];
    writable(settings: PartSettings): readonly string[];
  };
}

export interface PartDefinition {
  readonly name: string;
  /** Absent for one that needs all that a plugin needs. */
  readonly rights?: PartRights;
  /** SOCK_STREAM or SOCK_SEQPACKET, for its clients. Without one, the part starts with the server. */
  readonly socketType?: number;
}

/** Each runs what `part_programs.ts` has under its name. */
export const PARTS: readonly PartDefinition[] = [
  {
    name: "dhcp",
    socketType: SOCK_STREAM,
    rights: {
      // To enter a container by its path or process, to send whole frames there, and to take an address away.
      capabilities: [CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_RAW, CAP_NET_ADMIN],
      addressFamilies: [AF_INET, AF_INET6, AF_NETLINK, AF_PACKET],
      entersNamespaces: true,
    },
  },
  {
    name: "dnsname",
    socketType: SOCK_SEQPACKET,
    rights: {
      capabilities: [CAP_NET_BIND_SERVICE],
      // No sockets of files: those of engines obey user 0.
      addressFamilies: [AF_INET, AF_INET6, AF_NETLINK],
      entersNamespaces: false,
      files: {
        readable: ({ directory }) => [newStateDirectory(directory, "dnsname"), "/run", ...resolverDirectories()],
        writable: () => [],
      },
    },
  },
  {
    name: "cluster",
    rights: {
      // For links, routes and rules, and to enter pods by their path or process.
      capabilities: [CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SYS_PTRACE],
      addressFamilies: [AF_INET, AF_INET6, AF_NETLINK],
      entersNamespaces: true,
    },
  },
  {
    name: "policy",
    rights: {
      // For rules, and to mark connections.
      capabilities: [CAP_NET_ADMIN],
      addressFamilies: [AF_INET, AF_INET6, AF_NETLINK, AF_UNIX],
      entersNamespaces: false,
    },
  },
  { name: "heal" },
  {
    name: "metrics",
    rights: {
      // To read the ruleset, and to listen on any port.
      capabilities: [CAP_NET_ADMIN, CAP_NET_BIND_SERVICE],
      addressFamilies: [AF_INET, AF_INET6, AF_NETLINK, AF_UNIX],
      entersNamespaces: false,
      files: {
        readable: () => ["/"],
        writable: ({ metricsAddress = "" }) =>
          metricsAddress.startsWith("unix:") ? [newDirectory(directoryOf(metricsAddress.slice("unix:".length)))] : [],
      },
    },
  },
];

// This is `argv[0]` of its process.
export const partCommand = (name: string): string => `cni serve: ${name}`;

export const findPart = (name: string): PartDefinition => PARTS.find((part) => part.name === name)!;

/** @param directory that of the server's socket */
export function partPaths(directory: string, name: string): { readonly socket: string; readonly state: string } {
  return { socket: `${directory}/${name}.sock`, state: `${directory}/${name}` };
}

/** Nobody can be given rights to what does not exist. */
function newDirectory(path: string): string {
  ensureDirectory(path, 0o700);
  return path;
}

/** Makes its lock, too, which a part that writes nothing cannot make. */
function newStateDirectory(directory: string, name: string): string {
  const state = newDirectory(partPaths(directory, name).state);
  createFile(`${state}/lock`, "");
  return state;
}

/** Leads where the file of the host's resolvers is: to /run, or to /mnt/wsl. */
function resolverDirectories(): string[] {
  const path = ignoreSystemErrors(() => canonicalPath("/etc/resolv.conf"));
  return path === undefined ? [] : [directoryOf(path)];
}

export const directoryOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/";
