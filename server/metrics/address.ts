import { findStat } from "../../ffi/sys/stat.ts";
import { socketAddress } from "../../ffi/sys/unix_socket.ts";
import { UsageError } from "../../program/usage_error.ts";

/** A server that takes over listens on a port while the other one still answers. */
export type ListenAddress = { readonly unix: string } | {
  readonly hostname: string;
  readonly port: number;
  readonly reusePort: true;
};

/** @param text `127.0.0.1:9469`, `[::1]:9469`, `:9469` or `unix:/PATH` @throws {UsageError} */
export function parseMetricsAddress(text: string): ListenAddress {
  if (text.startsWith("unix:/")) return { unix: text.slice("unix:".length) };
  const { host = "", bracketed = host, port = "" } =
    /^(?:\[(?<bracketed>[\da-f:.]+)\]|(?<host>[\d.]*)):(?<port>\d{1,5})$/i
      .exec(text)?.groups ?? {};
  if (port !== "" && Number(port) <= 65_535) {
    return { hostname: bracketed || "::", port: Number(port), reusePort: true };
  }
  throw new UsageError(
    `--metrics must be an address with a port or a socket, such as 127.0.0.1:9469, [::1]:9469, :9469 or ` +
      `unix:/run/cni/metrics.sock: got ${JSON.stringify(text)}`,
  );
}

/** @throws {UsageError} for a file that is no socket @throws {RangeError} for too long a path */
export function requireSocketPath(path: string): void {
  socketAddress(path);
  const existing = findStat(path, false);
  if (!existing || existing.isSocket) return;
  throw new UsageError(`Cannot serve metrics on ${JSON.stringify(path)}: a file is there that is no socket`);
}
