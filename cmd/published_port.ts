/**
 * Published ports as written on a command line.
 *
 * @module
 */
import { type Ip, parseIp } from "../ffi/address.ts";
import { UsageError } from "./options.ts";

/** One entry of the capability `portMappings` (CONVENTIONS.md). */
export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: "tcp" | "udp" | "sctp";
  /** The only address of the host that is published; absent for all. */
  readonly hostIP?: Ip;
}

const FORM = /^(?:(?:\[([^\]]*)\]|([^:[\]]*)):)?([0-9]+):([0-9]+)(?:\/([A-Za-z]+))?$/;

/** Reads `[hostIP:]hostPort:containerPort[/protocol]`; an IPv6 address stands in brackets. @throws {UsageError} */
export function parsePublish(text: string): PortMapping {
  const refuse = (reason: string) => new UsageError(`cannot publish ${JSON.stringify(text)}: ${reason}`);
  const match = FORM.exec(text);
  if (!match) {
    throw refuse('expected [hostIP:]hostPort:containerPort[/protocol], such as "8080:80" or "[::1]:53:53/udp"');
  }
  const [, six, four, hostPort = "", containerPort = "", protocol = "tcp"] = match;
  const lower = protocol.toLowerCase();
  if (lower !== "tcp" && lower !== "udp" && lower !== "sctp") {
    throw refuse(`protocol must be tcp, udp or sctp: got "${protocol}"`);
  }
  const hostIP = parseHostIp(six ?? four, refuse);
  return {
    hostPort: parsePort(hostPort, refuse),
    containerPort: parsePort(containerPort, refuse),
    protocol: lower,
    ...(hostIP && { hostIP }),
  };
}

function parseHostIp(text: string | undefined, refuse: (reason: string) => UsageError): Ip | undefined {
  if (text === undefined) return undefined;
  try {
    return parseIp(text);
  } catch {
    throw refuse(`"${text}" is not an IP address`);
  }
}

function parsePort(text: string, refuse: (reason: string) => UsageError): number {
  const port = Number(text);
  if (port >= 1 && port <= 65535) return port;
  throw refuse(`a port must be from 1 to 65535: got "${text}"`);
}
