import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { SOCK_SEQPACKET, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import type { PartSettings } from "./part_settings.ts";

// linux/capability.h
const CAP_NET_BIND_SERVICE = 10;
const CAP_NET_ADMIN = 12;
const CAP_NET_RAW = 13;
const CAP_SYS_PTRACE = 19;
const CAP_SYS_ADMIN = 21;

/** What the process of a part may do. */
export interface PartRights {
  /** Of linux/capability.h. */
  readonly capabilities: readonly number[];
  /** Absent for one that opens namespaces of other processes, which Landlock refuses altogether. */
  readonly files?: {
    /** Directories whose files it reads, besides those of its program. */
    readonly readable: readonly string[];
    writable(settings: PartSettings): readonly string[];
  };
}

export interface PartDefinition {
  readonly name: string;
  /** Absent for one that needs all that a plugin needs. */
  readonly rights?: PartRights;
  /** SOCK_STREAM or SOCK_SEQPACKET: its clients connect to a socket. Without one, the part starts with the server. */
  readonly socketType?: number;
}

/** Each runs what `part_programs.ts` has under its name. */
export const PARTS: readonly PartDefinition[] = [
  {
    name: "dhcp",
    socketType: SOCK_STREAM,
    rights: {
      // To enter a container by its path or its process, to send whole frames there, and to take an address away.
      capabilities: [CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_RAW, CAP_NET_ADMIN],
    },
  },
  {
    name: "dnsname",
    socketType: SOCK_SEQPACKET,
    rights: {
      capabilities: [CAP_NET_BIND_SERVICE],
      files: {
        // Where the file of the host's resolvers may lead.
        readable: ["/run"],
        writable: ({ directory }) => [newStateDirectory(directory, "dnsname")],
      },
    },
  },
  { name: "heal" },
  {
    name: "metrics",
    rights: {
      // To read the ruleset, and to listen on any port.
      capabilities: [CAP_NET_ADMIN, CAP_NET_BIND_SERVICE],
      files: {
        readable: ["/"],
        writable: ({ metricsAddress = "" }) =>
          metricsAddress.startsWith("unix:") ? [directoryOf(metricsAddress.slice("unix:".length))] : [],
      },
    },
  },
];

export const findPart = (name: string): PartDefinition => PARTS.find((part) => part.name === name)!;

/** `directory`: that of the server's socket. */
export function partPaths(directory: string, name: string): { readonly socket: string; readonly state: string } {
  return { socket: `${directory}/${name}.sock`, state: `${directory}/${name}` };
}

/** Nobody can be allowed to write to what does not exist. */
function newStateDirectory(directory: string, name: string): string {
  const { state } = partPaths(directory, name);
  ensureDirectory(state, 0o700);
  return state;
}

export const directoryOf = (path: string): string => path.slice(0, path.lastIndexOf("/")) || "/";
