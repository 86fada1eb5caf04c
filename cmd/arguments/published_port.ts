import { type Ip, parseIp } from "../../ffi/address.ts";
import { UsageError } from "../../program/usage_error.ts";

/** An entry of the capability `portMappings` (CONVENTIONS.md). */
export interface PublishOption {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly hostIP?: Ip;
}

const PUBLISH_PATTERN = /^(?:(?:\[([^\]]*)\]|([^:[\]]*)):)?([0-9]+):([0-9]+)(?:\/([A-Za-z]+))?$/;

/** Reads `[hostIP:]hostPort:containerPort[/protocol]`, IPv6 in brackets. */
export function parsePublishedPort(text: string): PublishOption {
  const usageError = (reason: string) => new UsageError(`cannot publish ${JSON.stringify(text)}: ${reason}`);
  const match = PUBLISH_PATTERN.exec(text);
  if (!match) {
    throw usageError('expected [hostIP:]hostPort:containerPort[/protocol], such as "8080:80" or "[::1]:53:53/udp"');
  }
  const [, ipv6, ipv4, hostPort = "", containerPort = "", protocol = "tcp"] = match;
  const lowerProtocol = protocol.toLowerCase();
  if (lowerProtocol !== "tcp" && lowerProtocol !== "udp" && lowerProtocol !== "sctp") {
    throw usageError(`protocol must be tcp, udp or sctp: got "${protocol}"`);
  }
  const hostIP = parseHostIp(ipv6 ?? ipv4, usageError);
  return {
    hostPort: parsePort(hostPort, usageError),
    containerPort: parsePort(containerPort, usageError),
    protocol: lowerProtocol,
    ...(hostIP && { hostIP }),
  };
}

function parseHostIp(text: string | undefined, usageError: (reason: string) => UsageError): Ip | undefined {
  if (text === undefined) return undefined;
  try {
    return parseIp(text);
  } catch {
    throw usageError(`"${text}" is not an IP address`);
  }
}

function parsePort(text: string, usageError: (reason: string) => UsageError): number {
  const port = Number(text);
  if (port >= 1 && port <= 65535) return port;
  throw usageError(`a port must be from 1 to 65535: got "${text}"`);
}
